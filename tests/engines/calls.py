"""The calls: each function of two versions with each of its signatures, and operators, casts and collations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from tests.engines.samples import BY_NAME, BY_TYPE, COLLATIONS, OF_MACROS, OF_SEVERAL, OPEN, SYNTAX

# No pipeline can call these: `spark_jobs/sql/expressions.py` refuses them, or they are inside of DuckDB alone.
_LEFT_OUT = {
    *("current_setting", "version", "sleep_ms", "getenv", "getvariable", "write_log", "stats", "error", "checkpoint"),
    *("hash", "currval", "nextval", "json_serialize_sql", "json_serialize_plan", "format_type"),
}
_INSIDE = ("__", "!__", "pg_", "has_", "inet_", "current_", "icu_collate_", "collate_", "duckdb_", "st_")
# How many values of a signature of one, two or more parameters are tried together.
_TRIED = {1: 24, 2: 100}
_MORE = 40


class Calls(NamedTuple):
    """Calls of one function or piece of syntax with arguments of the same types, as people write them.

    DuckDB is asked for each in one of several `ways`, or for all `together`, if none of them fails.
    """

    name: str
    types: str
    shown: list[str]
    ways: list[list[str]]
    together: str = ""


def calls(functions: Iterable[Sequence[Any]]) -> Iterator[Calls]:
    """All calls, in a fixed order."""
    for name, kind, parameters, names, varargs, alias in functions:
        if alias is None and name not in _LEFT_OUT and not name.startswith(_INSIDE):
            # The age of one time is that of today: what it was yesterday nobody can ask.
            of_today = name == "age" and len(parameters) == 1
            for types in () if of_today else _signatures(kind, parameters, varargs):
                yield (_aggregates if kind == "aggregate" else _scalars)(name, types, names)
    for name, form, kinds in SYNTAX:
        yield from (_calls(name, [kind], form, _pairs(BY_TYPE[kind])) for kind in kinds if kind != "LAMBDA")
    yield from _casts()
    for name in COLLATIONS:
        yield _calls(f"COLLATE {name}", ["VARCHAR"], f"{{}} COLLATE {name} < {{}}", _pairs(BY_TYPE["VARCHAR"]))


def _signatures(kind: str, parameters: Sequence[str | None], varargs: str | None) -> Iterator[list[str]]:
    if kind == "macro":
        for each in OF_MACROS if parameters else ("",):
            yield [each] * len(parameters)
        return
    types = [each or "ANY" for each in parameters]
    for more in ((), (varargs, varargs)) if varargs else ((),):
        # Parameters of an open type are all of the same, and one after the other of each.
        asked = [*types, *more]
        if varargs and not asked:
            continue
        choices: Sequence[str] = max((OPEN.get(each, (each,)) for each in asked), key=len, default=())
        if len(asked) > 1 and len(choices) > 1:
            choices = OF_SEVERAL
        for chosen in choices if asked else ("",):
            listed = [chosen if each in ("ANY", "T", "V") else OPEN.get(each, (each,))[0] for each in asked]
            if all(each in BY_TYPE for each in listed):
                yield listed


def _values(types: Sequence[str], names: Sequence[str]) -> list[Sequence[str]]:
    named = [*names, *[""] * len(types)]
    return [
        BY_NAME[name] if kind == "VARCHAR" and name in BY_NAME else BY_TYPE[kind]
        for kind, name in zip(types, named, strict=False)
    ]


def _scalars(name: str, types: list[str], names: Sequence[str]) -> Calls:
    of = _values(types, names)
    # What is known by its name, as a part of a date, people write as a constant; so is an expression with lambdas.
    columns = [place for place, values in enumerate(of) if values not in (*BY_NAME.values(), BY_TYPE["LAMBDA"])]
    return _calls(name, types, f"{_quoted(name)}({', '.join(['{}'] * len(types))})", _tried(of), columns)


def _tried(of: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    """Values for the parameters: all of one, of two each with each, of more as many as there is room for."""
    every = list(product(*of))
    room = _TRIED.get(len(of), _MORE)
    # A step that shares no factor with the count comes by all places.
    step = max(1, len(every) // room)
    while step > 1 and any(len(one) % step == 0 for one in of):
        step += 1
    return islice(every[::step], room)


def _calls(
    name: str, types: Sequence[str], form: str, tried: Iterable[Sequence[str]], columns: Sequence[int] | None = None
) -> Calls:
    """Calls with columns in these places, by default in all, so that DuckDB does not work them out while it plans; or
    with literals alone, where it wants those."""
    rows = list(tried)
    columns = range(len(rows[0])) if columns is None else columns
    shown, ways = [form.format(*row) for row in rows], []
    for row, literal in zip(rows, shown, strict=True):
        call = form.format(*(f"a{place}" if place in columns else value for place, value in enumerate(row)))
        given = ", ".join(f"unnest([{row[place]}]) AS a{place}" for place in columns)
        asked = [f"SELECT {call} AS v FROM (SELECT {given})"] if given else []
        ways.append([_told(sql) for sql in (*asked, f"SELECT {literal} AS v")])
    together = ""
    # Values of unions would be of one type together.
    if len(columns) == len(rows[0]) > 0 and "UNION" not in types:
        named = ", ".join(f"a{place}" for place in columns)
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        together = _told(f"SELECT {form.format(*named.split(', '))} AS v FROM (VALUES {listed}) AS t({named})")
    return Calls(name, ", ".join(types), shown, ways, together)


def _aggregates(name: str, types: list[str], names: Sequence[str]) -> Calls:
    """An aggregate of all values, of ordinary ones, of one and of none."""
    of = _values(types, names)
    count = max(map(len, of), default=3)
    rows = [[values[row % len(values)] for values in of] for row in range(count)]
    ordinary = [row for row in rows if not any(odd in value for value in row for odd in ("nan", "inf", "NULL", "e300"))]
    columns = ", ".join(f"a{place}" for place in range(len(of)))
    shown, ways = [], []
    for some in (rows, ordinary, rows[2:3], []):
        listed = ", ".join(f"({', '.join(row or '1')})" for row in some or rows[:1])
        source = f"FROM (VALUES {listed}) AS t({columns or 'a0'}){'' if some else ' WHERE false'}"
        # What is said once for all rows has to be a constant.
        others = [f"a0, {', '.join(row[1:])}" for row in rows[2:6] if row[1:]]
        ways.append([_told(f"SELECT {_quoted(name)}({given}) AS v {source}") for given in (columns, *others)])
        shown.append(f"{name} of {', '.join(row[0] for row in some if row) or f'{len(some)} rows'}")
    return Calls(name, ", ".join(types), shown, ways)


def _pairs(values: Sequence[str]) -> Iterable[Sequence[str]]:
    every = list(product(values, values))
    return every[:: max(1, len(every) // 16)]


def _casts() -> Iterator[Calls]:
    for kind, to in product(BY_TYPE, BY_TYPE):
        if kind not in ("LAMBDA", "UNION") and to not in (*OPEN, "LAMBDA", "UNION", "MAP(K, V)", "STRUCT", "GEOMETRY"):
            yield _calls(f"::{to}", [kind], f"{{}}::{to}", [[value] for value in BY_TYPE[kind]])


def _quoted(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace('"', '""') + '"'


def _told(sql: str) -> str:
    # What is nested says itself as JSON: versions write it as text with other quotes, which is a difference of casts.
    nested = r"""regexp_matches(typeof(v), '\]$|^MAP|^STRUCT\("?[a-z]')"""
    return f"SELECT if({nested}, to_json(v)::VARCHAR, v::VARCHAR), typeof(v) FROM ({sql})"
