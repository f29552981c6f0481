"""Combined results: whether a combine makes of results, its own or those of tasks and batches, what it makes of all
records at once. It is tried on samples, so it does not matter which functions its aggregates stand in.

A sum of sums is that of all records, as is the least of the least. A sum that is rounded each time is not.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import duckdb

from partitioning.model.graph import quote
from partitioning.model.streams import Column
from spark_jobs.sql.expressions import OF_ALL, Tree, columns_named, nodes

# Which samples are combined, and which of them come first.
_GROUP, _PART = "@group", "@part"
GROUPED, PARTED, _SAMPLES = map(quote, (_GROUP, _PART, "@samples"))
_GROUPS = 96
# So many groups have the same values; and so many have more rows than a number up to this, as a count may be compared
# with it. Of three that follow one another one has texts that are words.
_FURTHER, _COUNTED, _MOST_COUNTED = 12, 3, 100
# From so many on, rows that are the same are told as one.
_TOLD_AS_ONE = 3
# Each of so many groups has values of any sign. They are for columns that are made of themselves alone: a sum may be of
# any, and a mean has no weights below 0.
_OF_ANY_SIGN = 3
_EACH_SIGN = [f"{GROUPED} % {_OF_ANY_SIGN} {sign} 0" for sign in ("=", "<>")]
# Which groups are tried, and which if some of them fail.
_FEWER = (["true"], _EACH_SIGN, [f"{GROUPED} = {group}" for group in range(12)])
_TOLERANCE = 1e-9
# Texts that a function of texts may put in another order than they have: by case, blanks, accents and length.
_UNLIKE_TEXTS = (" x", "W", "v10", "Ä", "")
# To so many digits behind the point a sum may be rounded.
_DIGITS = range(1, 9)
# Aggregates that pass over what is missing, with those that do not: of their own results they forget it.
_FORGETS = {
    **dict.fromkeys(("arg_max", "argmax", "max_by"), "arg_max_null"),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), "arg_min_null"),
}
_SAY_WHICH = (
    "say which is meant: list_sort(…) of all, max(…) or min(…), or arg_max(…, (at, id)) by what is equal in no two "
    "records"
)
_Row = Mapping[str, Any]


class Samples:
    """Samples of the rows of a relation, in groups. A combine is applied to each, at once and after some of its rows.
    If SQL fails on all groups, nothing is `tried`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Sequence[Column],
        keys: Collection[str],
        tree: Tree,
        parts: Tree | None = None,
    ) -> None:
        self._connection = connection
        self.tried = False
        names = {column.name.lower() for column in columns}
        self._named = {str(item["alias"]).lower(): _named(item, names) for item in tree["select_list"]}
        self._shown = _named(parts, names) if parts else frozenset[str]()
        self._called = {str(node.get("function_name", "")).lower() for node in nodes(tree)}
        numbers, texts = _constants([tree, parts])
        sample = ", ".join(
            f"{_value(connection.sqltype(column.type), f'cells[{number}]', texts)} AS {quote(column.name)}"
            for number, column in enumerate(columns, 3)
        )
        made = chain(_rows(columns, {*keys}, numbers), _near(columns, {*keys}, numbers))
        rows = [[*map(float, row[:2]), *row[2:]] for row in made]
        placed = f"cells[1]::INTEGER AS {GROUPED}, cells[2]::INTEGER AS {PARTED}"
        sql = f"SELECT {placed}, {sample} FROM (SELECT unnest(?) AS cells)"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_SAMPLES} AS {sql}", [rows])

    def of_own_results(self, combine: str, reads: str) -> Iterator[tuple[str, str]]:
        """What a combine, the SELECT of a relation that it `reads`, makes otherwise of its own results."""
        first, later, again = (
            f"WITH {quote(reads)} AS ({given}) {combine}"
            for given in (
                f"FROM $samples WHERE {PARTED} = 1",
                "FROM $samples",
                f"FROM (SELECT 0 AS {PARTED}, * FROM ($first) UNION ALL BY NAME FROM $samples WHERE {PARTED} = 2) "
                f"ORDER BY {PARTED}",
            )
        )
        for column, right, wrong, rows in self._differing(later, again.replace("$first", first)):
            what = f"a combine is applied to its own results, and {column} would be {wrong}, not {right}"
            yield f"{what}, if {_listed(rows, 1)} came first and {_listed(rows, 2)} later", self._instead(column)

    def of_parts(self, combine: str, made: Sequence[tuple[str, str]], given: str) -> Iterator[tuple[str, str]]:
        """What a combine makes otherwise of results. The steps `made`, by name and SELECT, make these of the records
        `given` to a task or batch."""
        steps = "".join(f", {quote(name)} AS ({sql})" for name, sql in made)
        at_once, apart = (
            f"WITH {quote(given)} AS ({rows}){steps} {combine}"
            for rows in (f"SELECT * REPLACE (0 AS {PARTED}) FROM $samples", "FROM $samples")
        )
        for column, right, wrong, rows in self._differing(at_once, apart):
            what = f"{column} would be {wrong}, not {right}, if one task or batch had {_listed(rows, 1)}"
            yield f"{what} and another {_listed(rows, 2)}", self._instead(column)

    def of_order(self, grouped: str, given: str, made: Sequence[tuple[str, str]] = ()) -> Iterator[tuple[str, str]]:
        """What an aggregate makes otherwise of the same records `given` in another order, perhaps through steps `made`
        before it. Between records that are equal in what an aggregate compares, the choice is not looked at."""
        steps = "".join(f", {quote(name)} AS ({sql})" for name, sql in made)
        rows = f"SELECT * REPLACE (0 AS {PARTED}) FROM $samples ORDER BY ALL"
        one, other = (f"WITH {quote(given)} AS ({rows} {way}){steps} {grouped}" for way in ("ASC", "DESC"))
        for column, right, wrong, found in self._differing(one, other, _GROUPS):
            some = " and ".join(filter(None, (_listed(found, 1), _listed(found, 2))))
            what = f"the order of records decides whether {column} is {right} or {wrong}, of {some}"
            yield f"{what}: it depends on the tasks and batches", _SAY_WHICH

    def _differing(
        self, at_once: str, apart: str, groups: int | None = None
    ) -> Iterator[tuple[str, str, str, Sequence[_Row]]]:
        """The columns that differ, in the first `groups`: each with what it is at once and apart, of the fewest rows,
        and these."""
        found = dict[str, tuple[str, str, Sequence[_Row]]]()
        for group, rows, right, wrong in self._compared(at_once, apart):
            self.tried = True
            if groups is not None and group >= groups:
                continue
            for column in right[0].keys() - {_GROUP}:
                names = self._named.get(column, frozenset({"", column}))
                one, other = (sorted((row[column] for row in made), key=repr) for made in (right, wrong))
                alone = names <= {column}
                if (alone or group % _OF_ANY_SIGN) and not _alike(one, other):
                    shown = [
                        {name: row[name] for name in row if name in {_PART, *(self._shown or names)}} for row in rows
                    ]
                    if column not in found or _size(shown) < _size(found[column][2]):
                        found[column] = _and(one), _and(other), shown
        yield from ((column, *found[column]) for column in sorted(found))

    def _compared(
        self, at_once: str, apart: str, fewer: Sequence[Sequence[str]] = _FEWER
    ) -> Iterator[tuple[int, Sequence[_Row], Sequence[_Row], Sequence[_Row]]]:
        """The rows of each group, and what is made of them at once and apart. Where SQL fails for some, `fewer` of them
        are tried."""
        for groups in fewer[0]:
            some = f"(FROM {_SAMPLES} WHERE {groups})"
            try:
                rows, right, wrong = (self._made(sql, some) for sql in ("FROM $samples", at_once, apart))
            except duckdb.Error:
                yield from self._compared(at_once, apart, fewer[1:]) if fewer[1:] else ()
            else:
                yield from ((group, rows[group], right[group], wrong[group]) for group in rows)

    def _made(self, sql: str, samples: str) -> Mapping[int, Sequence[_Row]]:
        """The rows of each group that a query makes of samples."""
        self._connection.execute(sql.replace("$samples", samples))
        names = [name.lower() for name, *_ in self._connection.description or ()]
        made = dict[int, list[_Row]]()
        for row in self._connection.fetchall():
            each = dict(zip(names, row, strict=True))
            made.setdefault(each[_GROUP], []).append(each)
        return made

    def _instead(self, column: str) -> str:
        keeps = (f"use {_FORGETS[name]} in place of {name}; or " for name in sorted(self._called & _FORGETS.keys()))
        alone = f"combine {column} by an aggregate alone, as sum(n) AS n, and calculate in a select behind it"
        return f"{''.join(keeps)}{alone}, or before it of each record; or {OF_ALL}"


def _rows(columns: Sequence[Column], keys: Collection[str], numbers: Collection[float]) -> Iterator[list[Any]]:
    """Numbers to make samples of, behind those of their group and part. In a column of a group no two are the same, and
    one may be missing; those of keys are."""
    chance = random.Random(0)
    for group in range(_GROUPS):
        count, few = chance.randint(2, 5), [number + number // 2 / 64 for number in range(1, 10)]
        if group % _OF_ANY_SIGN == 0:
            few = list(dict.fromkeys([*few, 0, *numbers, *(-number for number in (*few, *numbers))]))
        given = list[list[float | None]]()
        for column in columns:
            values: list[float | None] = [*chance.sample(few, count)]
            if column.name in keys:
                values = values[:1] * count
            elif chance.random() < 0.5:
                values[chance.randrange(count)] = None
            given.append(values)
        first = chance.randint(1, count - 1)
        yield from ([group, 1 + (row >= first), *(values[row] for values in given)] for row in range(count))


def _near(columns: Sequence[Column], keys: Collection[str], numbers: Collection[float]) -> Iterator[list[Any]]:
    """Rows as those of `_rows`, in further groups: of values that come again, of values whose sum is beyond a number
    that is compared with though none of them is, and more rows than such a number, half of them in each part."""
    chance, bounds = random.Random(1), sorted({abs(number) for number in numbers} - {0})
    counts = [int(each) + 2 for each in bounds if each == int(each) <= _MOST_COUNTED]
    few = [[1.0, 2 + 1 / 64], *([part * bound for part in (0.5, 0.75, 1)] for bound in bounds)]
    made = [(values, chance.randint(3, 6)) for values in few for _ in range(_FURTHER)]
    made += [([1.0], count) for count in counts for _ in range(_COUNTED)]
    for group, (values, count) in enumerate(made, _GROUPS):
        alike = chance.choice(values)
        for row in range(count):
            given = (alike if column.name in keys else chance.choice(values) for column in columns)
            yield [group, 1 + (row >= count // 2), *given]


def _value(kind: Any, number: str, texts: Sequence[str]) -> str:
    """SQL that makes a value of a type of a number."""
    match kind.id:
        case "boolean":
            return f"({number}::BIGINT % 2 = 0)"
        case "list" | "array":
            (_, child), *more = kind.children
            size = more[0][1] if more else 2
            items = ", ".join(_value(child, f"({number} + {each})", texts) for each in range(size))
            return f"CASE WHEN {number} IS NOT NULL THEN [{items}]::{kind} END"
        case "struct":
            fields = ", ".join(f"{quote(name)} := {_value(child, number, texts)}" for name, child in kind.children)
            return f"CASE WHEN {number} IS NOT NULL THEN struct_pack({fields}) END"
        case "map":
            key, value = (_value(child, number, texts) for _, child in kind.children)
            return f"CASE WHEN {number} IS NOT NULL THEN MAP {{{key}: {value}}} END"
        case "enum":
            texts = kind.children[0][1]
        case "varchar":
            texts = ["v1", *texts, *(f"v{each}" for each in range(2, 7)), *_UNLIKE_TEXTS]
        case name if name.startswith(("date", "time")):
            return f"TRY_CAST(TIMESTAMP '2026-01-01' + to_minutes(({number} * 1000)::BIGINT) AS {kind})"
        case _:
            return f"TRY_CAST(TRY_CAST({number} AS DOUBLE) AS {kind})"
    word = f"[{', '.join(map(_text, texts))}][abs({number})::BIGINT % {len(texts)} + 1]"
    if kind.id == "enum":
        return f"{word}::{kind}"
    # Some expressions read texts as numbers or times.
    day = f"(DATE '2026-01-01' + {number}::INTEGER)"
    return f"CASE cells[1] % 5 WHEN 0 THEN {number}::VARCHAR WHEN 1 THEN {day}::VARCHAR ELSE {word} END"


def _constants(trees: Sequence[Tree | None]) -> tuple[list[float], list[str]]:
    """The numbers and texts in expressions, with which columns may be compared."""
    literals = [node["literal"] for node in nodes(trees) if node["class"] == "CONSTANT"]
    found = [(each["kind"], each.get("text", "")) for each in literals]
    numbers = [float(text) for kind, text in found if kind in {"INTEGER", "NUMERIC"} and abs(float(text)) < 1e15]
    return [*numbers, *_halves(trees)], [text for kind, text in found if kind == "STRING"]


def _halves(trees: Sequence[Tree | None]) -> Iterator[float]:
    """Of digits to which a function may round, numbers of which half is rounded to nothing, and several halves are
    not."""
    for node in nodes(trees):
        last = (node.get("arguments") or node.get("children") or [{}])[-1]
        literal = (last.get("expression") or last).get("literal") or {}
        if node["class"] == "FUNCTION" and literal.get("kind") == "INTEGER" and int(literal["text"]) in _DIGITS:
            yield 0.8 * 10 ** -int(literal["text"])


def _named(item: Tree, columns: Collection[str]) -> frozenset[str]:
    """The columns that an expression names, perhaps behind the name of their relation, or with a field of them."""
    named = ([part.lower() for part in parts] for parts in columns_named([item]))
    return frozenset(next((part for part in parts if part in columns), parts[-1]) for parts in named)


def _alike(one: object, other: object) -> bool:
    """Whether two values are the same; floating-point numbers may differ in their last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) or one != one
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = [*one.items()], [*other.items()]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other


def _size(rows: Sequence[_Row]) -> tuple[int, int]:
    """How much there is to read of rows: as few as possible, and few without a value."""
    return len(rows), sum(value is None for row in rows for value in row.values())


def _listed(rows: Sequence[_Row], part: int) -> str:
    """The rows of a part, for people."""
    some = ([f"{name} {_shown(row[name])}" for name in row if name != _PART] for row in rows if row[_PART] == part)
    told = Counter(f"({', '.join(each)})" if each else "a record" for each in some)
    return " and ".join(
        f"{count} times {each}" if count >= _TOLD_AS_ONE else " and ".join([each] * count)
        for each, count in told.items()
    )


def _and(values: Sequence[object]) -> str:
    return " and ".join(map(_shown, values))


def _shown(value: object) -> str:
    return "NULL" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
