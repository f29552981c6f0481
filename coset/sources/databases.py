"""The DuckDB databases of a process. They can reach nothing but the relations that are put into them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb

# Where functions of numbers are not defined: there 1 fails, and 2 gives NaN or an infinity.
_UNDEFINED = {
    "sqrt": "$x < 0",
    **dict.fromkeys(("ln", "log", "log2", "log10"), "$x <= 0"),
    **dict.fromkeys(("acos", "asin", "atanh"), "abs($x) > 1 AND NOT isnan($x)"),
    **dict.fromkeys(("sin", "cos", "tan"), "isinf($x)"),
    "cot": "isinf($x) OR $x = 0",
    **dict.fromkeys(("gamma", "lgamma"), "$x = 0"),
}
_UNDEFINED_LOG = "$base <= 0 OR $base = 1 OR $x <= 0"
# The database that a process asks.
_asked: dict[int, duckdb.DuckDBPyConnection] = {}


def connect_to_ask() -> duckdb.DuckDBPyConnection:
    """A connection for questions about SQL and types, and about few rows.

    All such connections share one database, because a new one is slow. Use temporary objects only: each connection has
    its own.
    """
    process = os.getpid()
    if process not in _asked or not answers(_asked[process]):
        # A forked process must not use its parent's.
        _asked.clear()
        _asked[process] = new_database("1GB", None)
    return _asked[process].cursor()


def also_to_ask(database: duckdb.DuckDBPyConnection) -> None:
    """Let this process ask a database that it has anyway, unless it has one to ask."""
    _asked.setdefault(os.getpid(), database)


def words_of(error: duckdb.Error) -> str:
    """What DuckDB says of an error, in one line."""
    return str(error).partition("\n")[0].partition("Error: ")[2] or str(error)


def answers(database: duckdb.DuckDBPyConnection) -> bool:
    """Whether a database still answers, which it does not after some errors."""
    try:
        database.cursor().execute("SELECT 1").fetchall()
    except duckdb.Error:
        return False
    return True


def new_database(memory: str, temp: Path | None) -> duckdb.DuckDBPyConnection:
    """A database in memory without files, network, extensions or Python variables.

    In each version of DuckDB a whole number divided by zero is NULL, and functions fail where they are not defined.
    Data beyond `memory` is spilled to the folder `temp`. Without a folder it is an error.
    """
    # `python -m tests.engines` asks older versions too.
    answers_as_2 = int(duckdb.__version__.partition(".")[0]) >= 2
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": memory,
            "python_enable_replacements": "false",
            "temp_directory": str(temp or ""),
            "threads": "1",
            # Those with which 2 would read files.
            **({"async_threads": "0"} if answers_as_2 else {}),
        }
    )
    if answers_as_2:
        _as_in_1(database)
    # A local time zone would make results depend on the machine.
    database.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false")
    database.execute("SET enable_external_access = false; SET lock_configuration = true")
    return database


def _as_in_1(database: duckdb.DuckDBPyConnection) -> None:
    """Let 2 answer as 1 does: pipelines have published what that gave, and have set aside what it refused."""
    database.execute("SET GLOBAL error_on_division_by_zero = false")
    for name, undefined in _UNDEFINED.items():
        ways = [_unless(undefined, name, '"@x"'), *([_unless(_UNDEFINED_LOG, name, '"@base", "@x"')] * (name == "log"))]
        database.execute(f"CREATE MACRO {name}{', '.join(ways)}")


def _unless(undefined: str, name: str, given: str) -> str:
    """A macro's parameters and SQL that fails where a function is not defined: by a cast, as TRY refuses `error`."""
    where = re.sub(r"\$(\w+)", r'"@\1"::DOUBLE', undefined)
    fails = f"('{name} is not defined for ' || concat_ws(', ', {given}))::DOUBLE"
    return f"({given}) AS CASE WHEN {where} THEN {fails} ELSE system.main.{name}({given}) END"
