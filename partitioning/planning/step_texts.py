"""Step texts: what a step says of its records in a pipeline, so that two can be held against each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta

from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Op, Step, list_items
from partitioning.model.mark_columns import CHANGE

_JOIN = re.compile(r" (ASOF LEFT|LEFT|FULL) JOIN ")
# How close in time records must be stands only in the compiled SQL. Only Coset's own SQL has the column @time.
_NEAR = re.compile(r'"@time" - .+?"@time"\) <= ([0-9]+)')
# So is it of what is distinct within a time.
_APART = re.compile(r'"@before" > ([0-9]+)\)')
# Which rows of a join in time are shown.
_SHOWN = re.compile(r'EXCLUDE \("@alone"\).* WHERE (.*)$')
_QUOTED_OR_BLANK = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\s+""")
_AS_WRITTEN = re.compile(r"--|/\*|\$|\b[eE]'")
_AS = re.compile(r"\s+AS\s+(\S+)$", re.IGNORECASE)
# What a cast at the end is of, the scale if it is to a decimal, and the name.
_CAST = re.compile(
    r"([\w.]*(?:\w|\(.*\)))::\s*(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(\s*\d+\s*,\s*(\d+)\s*\))(?:\s+AS\s+(\S+))?",
    re.IGNORECASE | re.DOTALL,
)
# A name that may be a column, or an alias that others in the list read. Texts are passed over.
_NAME = re.compile(r"""'(?:[^']|'')*'|(?<![\w.])(?:"((?:[^"]|"")+)"|([^\W\d]\w*))(?!\w|\s*[(.])""")
# It stands for all columns, whatever is made of each.
_ALL = re.compile(r"\bCOLUMNS\s*\(", re.IGNORECASE)
# The first expression of these steps is a list of columns; of a cogroup, each is.
_LISTING = {Op.SELECT, Op.AGGREGATE, Op.JOIN, Op.PARTIAL, Op.COMBINE}


def passes(step: Step) -> bool:
    """Whether it gives the records that it is given: a merge of one, a move, a table that nothing deletes from."""
    if step.op is Op.TO_STREAM:
        return CHANGE not in step.sql
    return step.op in {Op.MERGE, Op.REPARTITION} or (step.op is Op.TABLE and not step.expressions)


def rows_of(step: Step) -> str:
    """Which records a step gives of those before it, apart from their columns."""
    if step.op is Op.MERGE:
        return Op.MERGE.value
    texts = step.expressions[1:] if step.op in _LISTING else () if step.op is Op.COGROUP else step.expressions
    op = step.op.value
    if step.op is Op.FILTER and not texts:
        texts = tuple(text for text in _SHOWN.findall(step.sql) if text != "true")
    if step.op is Op.TABLE:
        # A table without state drops deleting records by a filter.
        op, texts = Op.FILTER.value, tuple(f"({text}) IS NOT TRUE" for text in texts)
    if step.op is Op.JOIN:
        op = f"{''.join(f'{kind.lower()} ' for kind in _JOIN.findall(step.sql))}{op}"
    apart = near(step) if step.op is not Op.DISTINCT else _between(step, _APART)
    within = "" if apart is None else f" within {timedelta(microseconds=apart)}"
    if step.state and step.state.of_lives:
        within = f" kept {timedelta(microseconds=step.state.microseconds)}"
    # Partial results are combined by key afterwards, whichever task has made them.
    matters = step.op is not Op.PARTIAL and (step.rekeys or (step.keyed and step.op is not Op.TABLE))
    by = f" by {step.key} ({step.key_format})" if matters else ""
    return f"{op} {', '.join(texts)}".rstrip() + within + by


def places(step: Step) -> Iterator[str]:
    """The inputs of a join by the names that its SQL has, in their order; nothing for one that it does not name."""
    if step.op is Op.JOIN:
        for name in step.inputs:
            yield name if any(_names(name, text) for text in step.expressions) else ""


def _names(name: str, text: str) -> bool:
    return re.search(rf'(?<![\w."]){re.escape(name)}\.|"{re.escape(name)}"\.', text) is not None


def near(step: Step) -> int | None:
    """By how many microseconds the times of records may differ that an inner join in time puts together; None of other
    steps."""
    return _between(step, _NEAR)


def _between(step: Step, sql: re.Pattern[str]) -> int | None:
    found = sql.search(step.sql)
    return int(found[1]) if found else None


def _lists(step: Step) -> tuple[str, ...]:
    """The expressions that are lists of columns."""
    if step.op is Op.AGGREGATE:
        # What it groups by stands in one list with the columns.
        return (", ".join(step.expressions),)
    return step.expressions if step.op is Op.COGROUP else step.expressions[:1] if step.op in _LISTING else ()


def given_by(step: Step, before: frozenset[str]) -> frozenset[str]:
    """The names of the columns that a step may give, in small letters."""
    named = {name.lower() for text in _lists(step) for name in items(text)}
    own = {column.name.lower() for column in step.columns} | named | {part.lower() for part in key_columns(step.key)}
    passes = not step.function and (not named or any(not name.isidentifier() for name in named))
    return before | own if passes else frozenset(own)


def reads_of(step: Step, given: frozenset[str]) -> Iterator[tuple[str, str]]:
    """What the text of a step means by names for which it matters which columns it is given: one that it may give
    itself, and that others in the list read, is the column, if there is one; COLUMNS is all of them."""
    for text in _lists(step):
        found = Counter((found[1] or found[2] or "").lower() for found in _NAME.finditer(text))
        for name in sorted(name for name, often in found.items() if name and often > 1):
            yield name, "its input" if name in given else "its own"
    if any(_ALL.search(text) for text in step.expressions):
        yield "COLUMNS", ", ".join(sorted(given))


def columns_made(step: Step) -> Iterator[tuple[str, str]]:
    """The columns that it makes, by name, each with its expression or, of a function's, its type."""
    if step.function:
        yield from ((column.name, f"{column.name} {column.type}") for column in step.columns)
    elif step.op is Op.COGROUP:
        for number, text in enumerate(step.expressions):
            yield from ((f"{number}.{name}", item) for name, item in items(text).items())
    elif step.op in _LISTING:
        yield from items(step.expressions[0]).items()


def items(text: str) -> Mapping[str, str]:
    """The expressions of a list by the names that they give.

    >>> dict(items("a, greatest(b, 1) AS c, 'x, y' AS d"))
    {'a': 'a', 'c': 'greatest(b, 1) AS c', 'd': "'x, y' AS d"}
    """
    listed = (_folded(item).strip() for item in list_items(text))
    return {found[1] if (found := _AS.search(item)) else item: item for item in listed}


def _folded(text: str) -> str:
    """With one blank for several outside of quotes; as it is where a line may end a comment, or quotes are others."""
    return text if _AS_WRITTEN.search(text) else _QUOTED_OR_BLANK.sub(lambda found: found[1] or " ", text)


def alike(was: str, now: str) -> bool:
    """Whether two expressions give the same values: they are the same, but for the size of the whole number, or the
    digits before the point of the decimal, that they are cast to last.

    >>> alike("sum(n)::INTEGER AS n", "sum(n)::BIGINT AS n"), alike("n::INTEGER", "n::DOUBLE"), alike("n", "n::INTEGER")
    (True, False, False)
    """
    if was == now:
        return True
    one, other = _CAST.fullmatch(was), _CAST.fullmatch(now)
    return one is not None and other is not None and one.groups() == other.groups()
