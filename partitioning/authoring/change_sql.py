"""The SQL of changes: which rows of a flow go in a batch and which come, as rows with a number in the column `@change`.

It is how often a row comes, or below 0 how often it goes: the weights of Z-sets (Budiu and others, DBSP, VLDB 2023).
Steps that look at each row alone take changes as they take rows. Steps that bring rows of a key together get all rows
of the keys that changed, as they are after the batch; what they made before is kept, and taken back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from partitioning.model.graph import list_items, quote
from partitioning.model.mark_columns import CHANGE
from partitioning.model.table_mode import CHANGE_TYPE, COMES, GOES
from partitioning.values import Value

_CHANGE, _COPY, _ROWS = map(quote, (CHANGE, "@copy", "@rows"))
NEVER_CAME = "a row goes that never came"
# All columns, by themselves or of a flow.
_STAR = re.compile(r'\s*(?:"(?:[^"]|"")*"\.|\w+\.)?\*')
_NAMED = re.compile(r'(.+?)\s+AS\s+("(?:[^"]|"")*"|\w+)\s*', re.IGNORECASE | re.DOTALL)
_CALL = re.compile(r"\s*(count|sum)\s*\((.*?)\)\s*((?:::\s*\w+\s*(?:\([\d\s,]*\))?\s*)?)", re.IGNORECASE | re.DOTALL)
# An aggregate of some of the rows, or of their order.
_OF_SOME = re.compile(r"\s*distinct\b|\border\s+by\b", re.IGNORECASE)
_TYPE = r"(\w+)\s*(?:\(\s*\d+\s*,\s*(\d+)\s*\))?"
_CAST = re.compile(rf"(.+)::\s*{_TYPE}\s*", re.DOTALL)
_COLUMN = re.compile(r'(?:(?:"(?:[^"]|"")*"|\w+)\.)?(?:"(?:[^"]|"")*"|\w+)')
_BRACKETS = re.compile(r"\w*\s*\((.*)\)", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_WHOLE = {"TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
# Sums of whole numbers, in a type that files can have.
_HUGE = "DECIMAL(38,0)"


def all_come(flow: str) -> str:
    """The rows of a flow, each as one that comes.

    >>> print(all_come("a"))
    SELECT *, 1::BIGINT AS "@change" FROM "a"
    """
    return f"SELECT *, 1::BIGINT AS {_CHANGE} FROM {quote(flow)}"


def changes(kept: str, between: Sequence[tuple[str, str]]) -> str:
    """The rows of the newest that a step `kept`, after the steps `between`, each a name and its SELECT."""
    if not between:
        return all_come(kept)
    steps = ", ".join(f"{quote(name)} AS ({sql})" for name, sql in between)
    last, _ = between[-1]
    return f"SELECT *, 1::BIGINT AS {_CHANGE} FROM (WITH {steps} SELECT * FROM {quote(last)})"


def net(rows: str) -> str:
    """What remains of changes once what comes and goes is left out.

    >>> print(net("a"))
    SELECT * EXCLUDE ("@change"), sum("@change")::BIGINT AS "@change" FROM (a) GROUP BY ALL HAVING sum("@change") <> 0
    """
    total = f"sum({_CHANGE})"
    return f"SELECT * EXCLUDE ({_CHANGE}), {total}::BIGINT AS {_CHANGE} FROM ({rows}) GROUP BY ALL HAVING {total} <> 0"


def taken_back(rows: str) -> str:
    """Rows that came, as such that go."""
    return f"SELECT * REPLACE (-{_CHANGE} AS {_CHANGE}) FROM ({rows})"


def selecting(columns: str) -> str:
    """A SELECT list of changes, with the column that says how often.

    >>> print(selecting("a, b"), selecting("*"), sep="; ")
    a, b, "@change"; *
    """
    return columns if any(map(_STAR.match, list_items(columns))) else f"{columns}, {_CHANGE}"


def kept(changes: str) -> str:
    """The rows that a flow of changes amounts to, of the keys that came: the step also gets its rows of before."""
    return (
        f"SELECT * REPLACE (CASE WHEN {_CHANGE} < 0 THEN error('{NEVER_CAME}') ELSE {_CHANGE} END AS {_CHANGE}) "
        f"FROM ({net(f'SELECT * FROM {quote(changes)}')})"
    )


def rows_of(kept: str) -> str:
    """The rows that a step keeps, each as often as it is there."""
    copies = f"SELECT *, unnest(range({_CHANGE})) AS {_COPY} FROM {quote(kept)}"
    return f"SELECT * EXCLUDE ({_CHANGE}, {_COPY}) FROM ({copies})"


class Totals(Value, frozen=True):
    """Aggregates from which rows can be taken back: `parts` are those of some changes, `sums` add them up, `shown` are
    the columns made of them. `some` says of which keys there are rows, and so does `there`, which fails on fewer than
    none."""

    parts: str
    sums: str
    shown: str
    some: str
    there: str


def totals(columns: str) -> Totals | None:
    """The aggregates as totals, if each is a count, or a sum of what is cast to whole numbers or decimals: these are
    exact whatever is taken back, and sums of other numbers are not.

    >>> found = totals("count(*) AS n, sum(price::DECIMAL(9,2)) AS paid")
    >>> print(found.shown)
    "@rows" AS n, (CASE WHEN "@count_1" > 0 THEN "@sum_1" END) AS paid
    >>> totals("sum(price) AS paid"), totals("max(price) AS most")
    (None, None)
    """
    parts, sums, shown = [_weighed("count(*)", "BIGINT", _ROWS)], [_added(_ROWS, "BIGINT")], []
    for number, item in enumerate(list_items(columns)):
        named = _NAMED.fullmatch(item)
        call = _CALL.fullmatch(named[1]) if named else None
        if not named or not call or _OF_SOME.search(call[2]) or not _is_one(call[2]):
            return None
        function, given, cast, name = call[1].lower(), call[2].strip(), call[3].strip(), named[2]
        count, total, kind = quote(f"@count_{number}"), quote(f"@sum_{number}"), _exact(given)
        if function == "count" and given in {"*", ""}:
            shown.append(f"{_ROWS}{cast} AS {name}")
            continue
        parts.append(_weighed(f"count({given})", "BIGINT", count))
        sums.append(_added(count, "BIGINT"))
        made = count
        if function == "sum":
            if kind is None:
                return None
            parts.append(_weighed(f"sum({given})", kind, total))
            sums.append(_added(total, kind))
            value = total if kind != _HUGE else f"{total}::HUGEINT"
            made = f"(CASE WHEN {count} > 0 THEN {value} END)"
        shown.append(f"{made}{cast} AS {name}")
    some = f"{_ROWS} > 0"
    there = f"CASE WHEN {_ROWS} < 0 THEN error('{NEVER_CAME}')::BOOLEAN ELSE {some} END"
    return Totals(", ".join(parts), ", ".join(sums), ", ".join(shown), some, there)


def counted(source: str, alias: str) -> str:
    """Changes, each row as often as it comes or goes."""
    copies = f"SELECT *, unnest(range(abs({_CHANGE}))) AS {_COPY} FROM {quote(source)}"
    return f"({copies}) AS {quote(alias)}"


def coming(source: str, alias: str) -> str:
    """The rows that come."""
    return f"SELECT * EXCLUDE ({_CHANGE}, {_COPY}) FROM {counted(source, alias)} WHERE {_CHANGE} > 0"


def logged(source: str, alias: str) -> str:
    """Changes as rows of a changelog."""
    kind = f"CASE WHEN {_CHANGE} > 0 THEN '{COMES}' ELSE '{GOES}' END AS {CHANGE_TYPE}"
    return f"SELECT * EXCLUDE ({_CHANGE}, {_COPY}), {kind} FROM {counted(source, alias)}"


def _weighed(call: str, kind: str, name: str) -> str:
    """An aggregate of what comes, less that of what goes."""
    come, go = (f"coalesce({call} FILTER ({_CHANGE} {sign} 0), 0)" for sign in "><")
    return f"({come} - {go})::{kind} AS {name}"


def _added(name: str, kind: str) -> str:
    return f"sum({name})::{kind} AS {name}"


def _exact(text: str) -> str | None:
    """The type in which sums of an expression are exact. None if it does not say one by a cast at its end."""
    found = _CAST.fullmatch(text)
    if not found or not (_COLUMN.fullmatch(found[1].strip()) or _is_in_brackets(found[1].strip())):
        return None
    kind = found[2].upper()
    if kind in _WHOLE:
        return _HUGE
    return f"DECIMAL(38,{found[3]})" if kind in {"DECIMAL", "NUMERIC"} and found[3] else None


def _is_in_brackets(text: str) -> bool:
    """Whether an expression is one in brackets, or the call of a function."""
    inner = _BRACKETS.fullmatch(text)
    return inner is not None and _is_one(inner[1])


def _is_one(text: str) -> bool:
    """Whether no bracket is closed that was not opened in the text."""
    depth = 0
    for letter in _QUOTED.sub("", text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0
