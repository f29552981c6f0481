"""Answers calls of SQL, one list a line, in whichever version of DuckDB runs this; `__main__.py` starts it.

It needs DuckDB alone, and Coset's own settings of it. A call that ends the process or never returns is told apart by
who asks, as the answers of earlier calls are printed by then.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import duckdb

FUNCTIONS = """
    SELECT function_name, function_type, parameter_types, parameters, varargs, alias_of FROM duckdb_functions()
    WHERE function_type IN ('scalar', 'aggregate', 'macro') AND database_name = 'system' ORDER BY ALL
"""
_LONG = 300
_MEMORY = 2 << 30


def connected() -> duckdb.DuckDBPyConnection:
    """A database as tasks have it, by Coset's module alone: the rest of Coset is not installed here."""
    file = Path(__file__).parents[2] / "coset" / "sources" / "databases.py"
    spec = spec_from_file_location("databases", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.new_database("1GB", None)


def together(database: duckdb.DuckDBPyConnection, sql: str) -> list[str] | None:
    """The answers of several calls, None if one of them fails."""
    try:
        return [_short(*row) for row in database.execute(sql).fetchall()]
    except (duckdb.FatalException, duckdb.InternalException):
        raise  # the database answers nothing more
    except Exception:  # whatever it is called in this version
        return None


def answer(database: duckdb.DuckDBPyConnection, ways: Sequence[str]) -> str:
    """The type and value of a call, by the first of several ways to ask for it that DuckDB can bind; or that it is an
    error, whose text does not count."""
    for way in ways:
        try:
            return _short(*database.execute(way).fetchall()[0])
        except duckdb.BinderException:
            continue
        except (duckdb.FatalException, duckdb.InternalException):
            raise
        except Exception:
            return "error"
    return "error"


def _short(text: str | None, kind: str) -> str:
    """A value with its type; of a long one how it begins, and its digest."""
    if text is not None and len(text) > _LONG:
        text = f"{text[:_LONG]}… {sha256(text.encode()).hexdigest()}"
    return f"{text}::{kind}"


def main() -> None:
    database = connected()
    # Beside the addresses that DuckDB reserves, of which it uses little.
    most = _MEMORY + resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print(json.dumps([duckdb.__version__, database.execute(FUNCTIONS).fetchall()]), flush=True)
    for line in sys.stdin:
        sql, each = json.loads(line)
        answers = together(database, sql) if sql else None
        print(json.dumps(answers if answers and len(answers) == len(each) else None), flush=True)
        for ways in () if answers and len(answers) == len(each) else each:
            print(json.dumps(answer(database, ways)), flush=True)


if __name__ == "__main__":
    main()
