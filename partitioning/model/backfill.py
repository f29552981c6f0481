"""Backfills: published batches that are run again beside what is published, compared with it, and put in its place.

A backfill has a ledger of its own, under a name that says which pipeline it is of, and which of its backfills.
"""

from __future__ import annotations

import re
from enum import StrEnum
from json import JSONDecoder
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from partitioning.sections import many
from partitioning.values import Document, Value

_NAME = re.compile(r"(.+)\.backfill-([0-9]+)")


def name_of(pipeline: str, number: int) -> str:
    """Under which name a backfill's documents and files lie.

    >>> pipeline_of(name_of("shop", 3)), pipeline_of("shop")
    ('shop', None)
    """
    return f"{pipeline}.backfill-{number}"


def key_of(pipeline: str, number: int) -> str:
    """Where the request for a backfill lies."""
    return f"{name_of(pipeline, number)}/backfill.json"


def pipeline_of(name: str) -> str | None:
    """The pipeline whose batches are run again under that name; None if it is a pipeline's own."""
    match = _NAME.fullmatch(name)
    return match[1] if match else None


class Backfill(Document, frozen=True):
    """The request: these published `batches` of a pipeline, planned by these `settings`, as TOML; who, why and when.

    If their input was `repaired`, the files that hold their offsets are looked for anew.
    """

    FORMAT: ClassVar[str] = "coset.backfill/1"

    pipeline: str
    number: int
    batches: tuple[int, ...]
    settings: str
    who: str
    why: str
    at: str
    repaired: Literal[True] | UnsetType = UNSET

    @property
    def name(self) -> str:
        """Under which its documents and files lie."""
        return name_of(self.pipeline, self.number)

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        named = f"batch {first}" if first == last else f"batches {first} to {last}"
        return f"backfill {self.number} of {self.pipeline}: {named}"


class Difference(Value, frozen=True):
    """Rows as they were and as they are now: how many, and a digest of each that knows no order.

    Of `keys` keys they differ; `first` has the rows of the first of them, as they were and as they are now.
    """

    rows: tuple[int, int]
    digests: tuple[str, str]
    keys: int
    first: tuple[tuple[str, str, str], ...]

    @property
    def first_columns(self) -> tuple[tuple[str, str, str], ...]:
        """The first of them for people: of a row beside a row only the columns that differ."""
        return tuple((key, *_columns_that_differ(before, now)) for key, before, now in self.first)

    @property
    def same(self) -> bool:
        return self.rows[0] == self.rows[1] and self.digests[0] == self.digests[1]


def _columns_that_differ(before: str, now: str) -> tuple[str, str]:
    try:
        were, are = _columns(before), _columns(now)
    except ValueError:
        # Several rows of a key.
        return before, now
    differ = {name for name in were | are if were.get(name) != are.get(name)}
    shown = [", ".join(f"{name} {row[name]}" for name in row if name in differ) for row in (were, are)]
    return shown[0], shown[1]


def _columns(row: str) -> dict[str, str]:
    """A row in JSON, each value as it is written there. Raises ValueError if it is more than one."""
    decoder, at, columns = JSONDecoder(), 1, {}
    while at < len(row):
        name, colon = decoder.raw_decode(row, at)
        _, end = decoder.raw_decode(row, colon + 1)
        columns[name] = row[colon + 1 : end]
        at = end + 1
    return columns


class TableComparison(Difference, frozen=True, kw_only=True):
    """The rows that a batch gave a table, and those that it gives now."""

    batch: int
    table: str


class StateComparison(Difference, frozen=True, kw_only=True):
    """What a step keeps after the last batch, beside what was `kept_by` it, or by the step that it replaces; None if it
    replaces none."""

    step: str
    kept_by: str | None

    @property
    def stays(self) -> bool:
        """Whether the next batch finds what was kept under the same name."""
        return self.same and self.kept_by == self.step

    def __str__(self) -> str:
        if self.kept_by == self.step:
            return f"what {self.step} keeps"
        return f"what {self.step} keeps, {'which is new' if self.kept_by is None else f'before {self.kept_by}'}"


class InputChange(Value, frozen=True):
    """That files of a stream partition are others than a batch has read, in its `range`: so many that are other or new,
    and so many that are gone, `first` some of them; how many records they hold, before and now; and the offsets from
    each first to each last that were missing, and were `added`.
    """

    batch: int
    range: str
    files: tuple[int, int]
    first: tuple[str, ...]
    records: tuple[int, int]
    added: tuple[tuple[int, int], ...]

    @property
    def added_text(self) -> str:
        """The offsets that were added, for people."""
        partition = self.range.partition("@")[0]
        return ", ".join(f"{partition}@[{start},{end})" for start, end in self.added)


class Comparison(Document, frozen=True):
    """What a backfill gives, beside what its batches gave: `plans` has each batch, and the digests of both plans.

    `changes` are the reasons for which a table may be another than it was; with `functions` behind tables, only their
    import paths are known to be the same. `input` is what was repaired in it.
    """

    FORMAT: ClassVar[str] = "coset.comparison/2"

    pipeline: str
    backfill: int
    plans: tuple[tuple[int, str, str], ...]
    tables: tuple[TableComparison, ...]
    states: tuple[StateComparison, ...]
    changes: tuple[str, ...]
    functions: tuple[str, ...]
    input: tuple[InputChange, ...] | UnsetType = UNSET

    @property
    def repairs(self) -> tuple[InputChange, ...]:
        """What is other in the input than it was."""
        return self.input if isinstance(self.input, tuple) else ()

    @property
    def needs_approval(self) -> bool:
        """Whether somebody has to see it: only the same rows of the same input by the same pipeline are put in place
        without."""
        return not self.same or bool(self.changes) or bool(self.repairs)

    @property
    def kept_otherwise(self) -> tuple[str, ...]:
        """The steps that keep something else than later batches went on from."""
        return tuple(state.step for state in self.states if not state.stays)

    @property
    def compared_with(self) -> dict[int, str]:
        """The digest of the plan whose rows counted, by batch."""
        return {batch: before for batch, before, _ in self.plans}

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(table.same for table in self.tables) and all(state.same for state in self.states)

    def __str__(self) -> str:
        differ = {f"{table.table} (batch {table.batch})": table.keys for table in self.tables if not table.same}
        differ |= {f"what {state.step} keeps": state.keys for state in self.states if not state.same}
        if not differ:
            rows, kept = (sum(side.rows[1] for side in sides) for sides in (self.tables, self.states))
            of_steps = f", and {kept:,} that steps keep" if self.states else ""
            return f"identical: {many(rows, 'row')} of {many(len(self.plans), 'batch', 'batches')}{of_steps}"
        listed = ", ".join(f"{many(keys, 'key')} of {name}" for name, keys in differ.items())
        return f"different: {listed}"


class SwapKind(StrEnum):
    """Which rows readers are to see: those of a backfill, those that there were before, or those of this one never."""

    SWAP = "swap"
    UNDO = "undo"
    CANCEL = "cancel"


class Swap(Document, frozen=True):
    """The decision to put the rows of a backfill in the place of those that there are, to take that back, or to cancel
    a backfill that was never put in place.

    A pipeline's swaps are numbered without holes. `approved` is the digest of the comparison, if there is one. It
    `keeps` if the next batch goes on from what the backfill keeps, which is not what was kept before, so that upserted
    tables change too.
    """

    FORMAT: ClassVar[str] = "coset.swap/1"

    pipeline: str
    number: int
    backfill: int
    turn: SwapKind
    batches: tuple[int, ...]
    keeps: bool
    approved: str
    who: str
    why: str
    at: str


class Swapped(Document, frozen=True):
    """The receipt of a swap: the version of each table that holds it."""

    FORMAT: ClassVar[str] = "coset.swapped/1"

    pipeline: str
    number: int
    swap: str
    tables: dict[str, int]

    def __str__(self) -> str:
        listed = ", ".join(f"{table} at version {version}" for table, version in self.tables.items())
        return listed or "no table had to change"
