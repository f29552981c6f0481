"""Private columns: what is shown in place of their values, and which columns of a pipeline hold such values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.graph import Op, Step, list_items
from partitioning.model.mark_columns import AT, FROM, IDENTITY, TIME
from partitioning.model.streams import Stream
from partitioning.values import replace

# The same for all values: a short digest of a name or a birthday can be found by trying all there are.
MASK = "•••"
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\W\d]\w*)')
_AS = re.compile(r'\bAS\s+("(?:[^"]|"")*"|[^\W\d]\w*)\s*$', re.IGNORECASE)
_SAID_LAST = re.compile(r'(?<=[\w)"\]])\s+("(?:[^"]|"")*"|[^\W\d]\w*)\s*$|\)("(?:[^"]|"")*"|[^\W\d]\w*)\s*$')
_SAID_FIRST = re.compile(r'^\s*("(?:[^"]|"")*"|[^\W\d]\w*)\s*:(?!:)')
# Their expressions list columns; of a join the first does.
_LISTING = {Op.SELECT, Op.AGGREGATE, Op.JOIN, Op.PARTIAL, Op.COMBINE, Op.COGROUP}
# What a sentence says before it may quote a value: which record it is about, and what is wrong.
_BEFORE_VALUES = re.compile(r"(?:[^:]+: offset [0-9,]+: )?[^:]*(?::(?! )[^:]*)*")
# A key that a sentence quotes.
_QUOTED = re.compile("the key .*, which", re.DOTALL)
# Findings that may quote a value of the data.
_QUOTING = {Kind.KEY, Kind.RECORD, Kind.SQL, Kind.FUNCTION, Kind.FILE_UNREADABLE}


def private_names(streams: Iterable[Stream], steps: Sequence[Step]) -> frozenset[str]:
    """The names, in small letters, of all columns with values of private ones: by declaration, or because an expression
    that names a private column makes them. A function's columns under other names are not known.

    A name counts in every stream and step, whichever declares it.
    """
    streams = tuple(streams)
    names = {name.lower() for stream in streams for name in stream.private}
    for each in streams:
        columns = {*key_columns(each.key), *((each.key_bytes,) if each.key_bytes else ())}
        of_key = {name.lower() for name in columns}
        # What a key is made of, and its bytes, say each other.
        if names & of_key and (each.key_bytes or key_parts(each.key)):
            names |= {each.key.lower(), *(of_key if each.key_bytes else ())}
    while names:
        more = {name for step in steps for name in _made_of(step, names)} - names
        if not more:
            break
        names |= more
    return frozenset(names)


def is_private(column: str, names: Collection[str]) -> bool:
    """Whether a column is one of these, however it is written."""
    return column.lower() in names


def masked(column: str) -> str:
    """What SQL selects in place of a column, whose name is quoted: one text for all values, and null for none.

    >>> print(masked('"name"'))
    CASE WHEN "name" IS NULL THEN NULL ELSE '•••' END AS "name"
    """
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE '{MASK}' END AS {column}"


def mentions(text: str, names: Collection[str]) -> bool:
    """Whether a text, of SQL for instance, names one of these columns.

    >>> mentions("upper(p.Name) AS n", {"name"}), mentions("names", {"name"})
    (True, False)
    """
    return any(name in names for name in _named(text))


def without_values(finding: Finding) -> Finding:
    """A finding of a task that reads private columns: up to where it may quote a value."""
    if finding.kind not in _QUOTING:
        return finding
    said = _BEFORE_VALUES.match(finding.what)
    what = said[0] if said else ""
    quotes = len(what) < len(finding.what)
    where = finding.where.partition(", first key ")[0]
    hidden = ": the rest may quote a private column, and is not shown" if quotes else ""
    what = _QUOTED.sub(f"the key {MASK}, which", what) + hidden
    return replace(finding, what=what, where=where, about=(), each=tuple(map(without_values, finding.each)))


def _made_of(step: Step, names: Collection[str]) -> Iterator[str]:
    """The columns that a step makes of private ones, in small letters, also of rows that it kept."""
    changed = step.state.changed if step.state else None
    if changed:
        yield from (column.lower() for column, sql in (*changed.begins, *changed.migrate) if mentions(sql, names))
    for text, marks in _marked_by(step):
        if mentions(text, names):
            yield from marks
    for number, text in enumerate(step.expressions):
        listing = step.op in _LISTING and (number == 0 or step.op is not Op.JOIN)
        for item in list_items(text):
            if mentions(item, names):
                if step.rekeys and step.key:
                    yield step.key.lower()
                for form in (_AS, _SAID_FIRST, _SAID_LAST) if listing else (_AS,):
                    if match := form.search(item):
                        yield from _named(next(filter(None, match.groups())))
                        break


def _marked_by(step: Step) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The expressions of a step whose values it keeps as they are, each with the columns in which it does."""
    said = step.expressions
    match step.op:
        case Op.DISTINCT:
            yield from zip(said, ((IDENTITY,), (TIME,)), strict=True)
        case Op.RECENT:
            yield said[0], (TIME,)
            if step.state and step.state.own_time:
                yield said[step.state.own_time], (AT,)
        case Op.COMBINE | Op.LATEST if step.state and step.state.of_lives:
            yield said[-1], (FROM, TIME)
        case _:
            pass


def _named(text: str) -> Iterator[str]:
    for quoted, bare in _NAME.findall(text):
        yield (quoted.replace('""', '"') or bare).lower()
        # A column without an alias is called as its expression is written.
        yield from (part.lower() for _, part in _NAME.findall(quoted))
