"""Verified: which part of the keys of a table is held against its query, and what is found of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from partitioning.commands import BackfillAsking, Then
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Difference
from partitioning.model.meaning import Meaning
from partitioning.model.verification import PARTS
from partitioning.sections import many

_PART = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The keys of which h(key) mod `of` is `residue`: one part of a table in so many, exact for these keys."""

    residue: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> KeyPart:
        """The part that `3/16`, the third of sixteen, means. Raises Refused for anything else."""
        if (found := _PART.fullmatch(text)) and int(found[1]) <= int(found[2]):
            return cls(int(found[1]) - 1, int(found[2]))
        then = "write which of how many parts: 1/16 is the first of sixteen, next the one that was verified longest ago"
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no part of the keys", "--sample", then, sample=text)

    def __str__(self) -> str:
        return f"{self.residue + 1}/{self.of}"


ALL = KeyPart()


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of a table: how the rows of its query differ from those that are published, `rows[0]` published, in a
    part of the keys; or why this cannot be said of it. The rows are those of now, or of a `version` of the table, and
    those `since` a batch if records before it are gone, or if it `replaces` the rows before. `reasons` say why they may
    differ, as far as that is known. What others changed up to the version `accepted` is none of them."""

    table: str
    batch: int
    means: Meaning
    found: Difference | str
    part: KeyPart = ALL
    version: int | None = None
    since: int = 0
    reasons: tuple[str, ...] = ()
    replaces: bool = False
    accepted: int = -1

    @property
    def difference(self) -> Difference | None:
        return None if isinstance(self.found, str) else self.found

    @property
    def is_wrong(self) -> bool:
        return isinstance(self.found, Difference) and not self.found.same

    def __str__(self) -> str:
        if isinstance(self.found, str):
            return f"Table {self.table} is not verified: {self.found}"
        published, query = self.found.rows
        of_part = "" if self.part.of == 1 else f", part {self.part} of its keys"
        of_part += "" if self.version is None else f", as version {self.version} has it"
        if self.since and not self.replaces:
            of_part += f", from batch {self.since} on, as records before it are gone"
        of_part += (
            "" if self.accepted < 0 else f", but for what others changed up to version {self.accepted}, as accepted"
        )
        if self.found.same:
            over = "over the records of" if self.replaces else "up to"
            return f"Table {self.table} is its query {over} batch {self.batch}{of_part}: {many(published, 'row')}"
        differ = f"the rows of {many(self.found.keys, 'key')} differ" if self.found.keys else "its rows differ"
        rows = f"{differ}; it has {many(published, 'row')}, its query {query:,}"
        return "; ".join([f"Table {self.table} is not its query{of_part}: {rows}", *self.reasons])


_NEXT = re.compile(r"next(?:/([1-9]\d{0,5}))?")


@dataclass(frozen=True, slots=True)
class NextPart:
    """The part of so many that was verified longest ago, of each table."""

    of: int = PARTS

    def __str__(self) -> str:
        return f"next/{self.of}"


def sample_of(text: str) -> KeyPart | NextPart:
    """The part of the keys that `3/16`, `next` or `next/32` means. Raises Refused for anything else."""
    if found := _NEXT.fullmatch(text):
        return NextPart(int(found[1] or PARTS))
    return KeyPart.parse(text)


def differs(pipeline: str, each: Verified, *, changed: bool = False) -> Finding:
    """The finding on a table that differs from its query; `changed` says that another finding is on what others did to
    its rows, which comes first."""
    found = each.difference
    assert found is not None
    of = "" if each.part.of == 1 else f" of part {each.part}"
    what = f"of {many(found.keys, 'key')}{of} other rows are published than the query gives"
    what = "; ".join([what, *each.reasons])
    where = f"table {each.table!r} after batch {each.batch}"
    first = each.since if each.replaces else 0
    before = "first settle what others did to it, as is said of that; if rows differ then, " if changed else ""
    then: Then = (f"{before}run its batches again and compare: ", BackfillAsking(pipeline, first, cascade=True))
    if not each.means.is_query and not each.replaces:
        what = f"{what}: in step {each.means.step}, {each.means.why}"
        then = each.means.instead
    return Finding.of(Kind.TABLE_DIFFERS, what, where, then, table=each.table, keys=found.keys, batch=each.batch)
