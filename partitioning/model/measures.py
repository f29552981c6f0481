"""Measures: figures of result tables that expectations ask for, and that verdicts keep for the batches after them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

from partitioning.model.graph import Write
from partitioning.values import Value

# The arguments of expectations that name what they are about.
SUBJECTS = ("column", "column_A", "column_B", "column_list")
# Where an answer says why a figure could not be judged yet.
NOT_JUDGED = "not judged"
_MICROSECONDS = {"m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6, "w": 7 * 86_400 * 10**6}
_WITHIN = re.compile(r"([1-9][0-9]{0,4})([mhdw])")


class FigureForm(StrEnum):
    """How pages write a figure. An age or a number may be a value of the table."""

    COUNT = "count"
    SHARE = "share"
    AGE = "age"
    NUMBER = "number"


_NUMBERED = "epoch_us(CAST(({of}) AS TIMESTAMP))"


class MeasureKind(StrEnum):
    """How many rows there are; which share of a column is null; how many keys; the latest time; the sum of a column.

    Each has the `expectation` that asks for it, by Great Expectations' name, what it is `called` and its `form` on
    pages, and the aggregate that it is in `sql`, if it is one of a column or expression.
    """

    expectation: str
    called: str
    form: FigureForm
    sql: str

    def __new__(
        cls, kind: str, expectation: str = "", called: str = "", form: FigureForm = FigureForm.COUNT, sql: str = ""
    ) -> MeasureKind:
        """A word with what belongs to it."""
        measure = str.__new__(cls, kind)
        measure._value_ = kind
        measure.expectation, measure.called, measure.form, measure.sql = expectation, called, form, sql
        return measure

    ROWS = "rows", "expect_rows_as_usual", "rows, as judged", FigureForm.COUNT
    NULLS = (
        *("nulls", "expect_few_nulls", "{of} is null", FigureForm.SHARE),
        "count(*) FILTER (({of}) IS NULL) / nullif(count(*), 0)",
    )
    KEYS = "keys", "expect_keys_as_usual", "distinct keys", FigureForm.COUNT
    LATEST = (
        *("latest", "expect_fresh", "age of the latest {of}", FigureForm.AGE),
        f"max({_NUMBERED}) FILTER ({_NUMBERED} <= {{latest}})",
    )
    SUM = "sum", "expect_never_falls", "sum of {of}", FigureForm.NUMBER, "{sum}({of})"


# The ready-made expectations, as Great Expectations names them.
READY_MADE = {kind.expectation: kind for kind in MeasureKind}


class Measure(Value, frozen=True, order=True):
    """What is measured, and `of` which column or SQL expression, if of one.

    >>> print(Measure(MeasureKind.SUM, "amount"), Measure(MeasureKind.ROWS))
    sum(amount) rows
    """

    kind: MeasureKind
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind}({self.of})" if self.of else str(self.kind)

    @classmethod
    def read(cls, text: str) -> Measure:
        """The measure that is written so.

        >>> Measure.read("sum(f(amount))"), Measure.read("rows")
        (Measure(kind=<MeasureKind.SUM: 'sum'>, of='f(amount)'), Measure(kind=<MeasureKind.ROWS: 'rows'>, of=''))
        """
        kind, _, of = text.partition("(")
        return cls(MeasureKind(kind), of[:-1])


class Measured(Value, frozen=True, order=True):
    """A figure of a result table after a batch, by what was measured; None if there was nothing to take it from.

    A number that is not whole is text: documents hold none whose text differs between languages.

    >>> Measured.of("spent", "nulls(late)", 0.025)
    Measured(table='spent', figure='nulls(late)', value='0.025')
    """

    table: str
    figure: str
    value: int | str | None

    @classmethod
    def of(cls, table: str, figure: str, number: float | None) -> Measured:
        """The figure that has this number."""
        return cls(table, figure, repr(number) if isinstance(number, float) else number)

    @property
    def number(self) -> int | float | None:
        """The value as a number."""
        return float(self.value) if isinstance(self.value, str) else self.value


def measures_of(write: Write) -> tuple[Measure, ...]:
    """What the ready-made expectations on a table ask for, each once."""
    return tuple(dict.fromkeys(measure for text in write.expectations if (measure := _measure(text)) is not None))


def ask_when(writes: Iterable[Write]) -> bool:
    """Whether an expectation goes by the time at which its batch was planned."""
    return any(measure.kind is MeasureKind.LATEST for write in writes for measure in measures_of(write))


def microseconds(within: str) -> int:
    """A time such as 30m, 2h, 1d or 1w. Raises ValueError for what is none.

    >>> microseconds("2h") // 10**6
    7200
    """
    found = _WITHIN.fullmatch(within)
    if found is None:
        raise ValueError(f"{within!r} is no time: write 30m, 2h, 1d or 1w")
    return int(found[1]) * _MICROSECONDS[found[2]]


def merged(given: Iterable[str], added: Iterable[str]) -> Iterator[str]:
    """Expectations, as JSON text, with those that are added. One of the same type about the same column changes the
    given one: what it does not say stays.

    >>> given = '{"kwargs":{"at_most":0.1,"column":"late"},"type":"expect_few_nulls"}'
    >>> list(merged([given], ['{"kwargs":{"column":"late"},"severity":"warning","type":"expect_few_nulls"}']))
    ['{"kwargs":{"at_most":0.1,"column":"late"},"severity":"warning","type":"expect_few_nulls"}']
    """
    by_subject = {_subject(text): json.loads(text) for text in given}
    for text in added:
        new, old = json.loads(text), by_subject.get(_subject(text), {})
        by_subject[_subject(text)] = old | new | {"kwargs": old.get("kwargs", {}) | new.get("kwargs", {})}
    return map(as_text, by_subject.values())


def as_text(expectation: object) -> str:
    """An expectation as canonical JSON. Raises TypeError or ValueError for what JSON does not have."""
    return json.dumps(expectation, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _subject(text: str) -> str:
    stated = json.loads(text)
    kwargs = stated.get("kwargs") or {}
    return as_text([stated.get("type"), *(kwargs.get(name) for name in SUBJECTS)])


def _measure(text: str) -> Measure | None:
    stated = json.loads(text)
    kind = READY_MADE.get(stated.get("type"))
    return None if kind is None else Measure(kind, str((stated.get("kwargs") or {}).get("column", "")))
