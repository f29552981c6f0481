"""Backfills: published batches run again beside the published data, compared with it, and swapped in.

Each backfill has its own ledger. The ledger's name gives the pipeline and the backfill's number.
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
    """The name under which a backfill's documents and files lie.

    >>> pipeline_of(name_of("shop", 3)), pipeline_of("shop")
    ('shop', None)
    """
    return f"{pipeline}.backfill-{number}"


def key_of(pipeline: str, number: int) -> str:
    """The key of a backfill's request in the store."""
    return f"{name_of(pipeline, number)}/backfill.json"


def pipeline_of(name: str) -> str | None:
    """The pipeline whose batches a backfill of this name runs again. None if the name is a pipeline's own."""
    match = _NAME.fullmatch(name)
    return match[1] if match else None


class Backfill(Document, frozen=True):
    """A request to run published `batches` again with these `settings` (TOML): who asked, why and when.

    If the input was `repaired`, planning looks again for the files that hold the offsets.
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
        """The name under which its documents and files lie."""
        return name_of(self.pipeline, self.number)

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        named = f"batch {first}" if first == last else f"batches {first} to {last}"
        return f"backfill {self.number} of {self.pipeline}: {named}"


class Difference(Value, frozen=True):
    """Rows before and now: their numbers, and an order-independent digest of each set.

    The rows of `keys` keys differ. `first` has the rows of the first of these keys, before and now.
    """

    rows: tuple[int, int]
    digests: tuple[str, str]
    keys: int
    first: tuple[tuple[str, str, str], ...]

    @property
    def first_columns(self) -> tuple[tuple[str, str, str], ...]:
        """The first differing rows, for people. Where a key has one row on each side, only the columns that differ."""
        shown = ((key, *_columns_that_differ(old, new), old, new) for key, old, new in self.first)
        return tuple((key, were if old else "no row", are if new else "no row") for key, were, are, old, new in shown)

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
    """The values of a row in JSON, as written. Raises ValueError if the text is more than one row."""
    decoder, at, columns = JSONDecoder(), 1, {}
    while at < len(row):
        name, colon = decoder.raw_decode(row, at)
        _, end = decoder.raw_decode(row, colon + 1)
        columns[name] = row[colon + 1 : end]
        at = end + 1
    return columns


class TableComparison(Difference, frozen=True, kw_only=True):
    """The rows that a batch wrote to a table before, and those that it writes now.

    Those `of_others` are all rows of an upserted table that others changed, and the rows that its step keeps.
    """

    batch: int
    table: str
    of_others: Literal[True] | UnsetType = UNSET


class StateComparison(Difference, frozen=True, kw_only=True):
    """The state of a step after the last batch, compared with the state that was `kept_by` it before or by the step
    that it replaces. `kept_by` is None if it replaces none. Upserted `tables` of other names have the rows of the step.
    """

    step: str
    kept_by: str | None
    tables: tuple[str, ...] | UnsetType = UNSET

    @property
    def stays(self) -> bool:
        """Whether the next batch finds the state under the same name."""
        return self.same and self.kept_by == self.step

    @property
    def kept(self) -> str:
        """What is compared, for people."""
        tables = f" for {' and '.join(self.tables)}" if self.tables else ""
        return f"what {self.step} keeps{tables}"

    def __str__(self) -> str:
        if self.kept_by == self.step:
            return self.kept
        return f"{self.kept}, {'which is new' if self.kept_by is None else f'before {self.kept_by}'}"


class InputChange(Value, frozen=True):
    """Files of a stream partition that changed since a batch read them, within its `range`: how many are new or
    different, how many are gone, the `first` few of them, how many records they held before and hold now. `added` lists
    the missing offsets that are there now, each first to last."""

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
    """The result of a backfill beside that of the published batches. `plans` has each batch with the digests of both
    plans.

    `changes` are the reasons why a table may differ. Steps in `functions` call code that is not known to be the same;
    `code` has each function behind the tables by import path, with the digests of its code before and now, empty where
    a plan does not note it. `input` is what was repaired. `engines` are the versions of DuckDB before and now, where
    they differ.
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
    code: dict[str, tuple[str, str]] | UnsetType = UNSET
    engines: tuple[tuple[str, str], ...] | UnsetType = UNSET

    @property
    def code_compared(self) -> dict[str, tuple[str, str]]:
        """The digests of functions' code, where plans note it."""
        return self.code if isinstance(self.code, dict) else {}

    @property
    def may_differ(self) -> bool:
        """Whether rows may differ although the pipeline is the same: nobody knows what its functions depend on, or it
        ran in another version of DuckDB."""
        return bool(self.functions or self.code_compared or self.engines)

    @property
    def repairs(self) -> tuple[InputChange, ...]:
        """What changed in the input."""
        return self.input if isinstance(self.input, tuple) else ()

    @property
    def needs_approval(self) -> bool:
        """Whether a person must approve the swap. Nobody has to if rows, input and pipeline are the same."""
        return not self.same or bool(self.changes) or bool(self.repairs)

    @property
    def kept_otherwise(self) -> tuple[str, ...]:
        """The steps whose state differs from the one that later batches continued from."""
        return tuple(state.step for state in self.states if not state.stays)

    @property
    def taken_back(self) -> tuple[str, ...]:
        """The upserted tables in which changes of others are taken back."""
        return tuple(table.table for table in self.tables if table.of_others is True)

    @property
    def compared_with(self) -> dict[int, str]:
        """The digest of the plan whose rows readers saw, by batch."""
        return {batch: before for batch, before, _ in self.plans}

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(table.same for table in self.tables) and all(state.same for state in self.states)

    def __str__(self) -> str:
        differ = {f"{table.table} (batch {table.batch})": table.keys for table in self.tables if not table.same}
        differ |= {state.kept: state.keys for state in self.states if not state.same}
        if not differ:
            rows, kept = (sum(side.rows[1] for side in sides) for sides in (self.tables, self.states))
            of_steps = f", and {kept:,} that steps keep" if self.states else ""
            return f"identical: {many(rows, 'row')} of {many(len(self.plans), 'batch', 'batches')}{of_steps}"
        listed = ", ".join(f"{many(keys, 'key')} of {name}" for name, keys in differ.items())
        return f"different: {listed}"


class SwapKind(StrEnum):
    """Which rows readers see: those of a backfill, those before it, or never those of this one."""

    SWAP = "swap"
    UNDO = "undo"
    CANCEL = "cancel"


class Swap(Document, frozen=True):
    """A decision about a backfill: swap its rows in, undo the swap, or cancel a backfill that was never swapped in.

    A pipeline's swaps are numbered without gaps. `approved` is the digest of the approved comparison, if any. With
    `keeps`, the next batch continues from the backfill's state, which differs from the published one; so upserted
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
    """The receipt of a swap: the version of each table that has it."""

    FORMAT: ClassVar[str] = "coset.swapped/1"

    pipeline: str
    number: int
    swap: str
    tables: dict[str, int]

    def __str__(self) -> str:
        listed = ", ".join(f"{table} at version {version}" for table, version in self.tables.items())
        return listed or "no table had to change"
