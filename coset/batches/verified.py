"""Verified: what is remembered of verifications, which part of the keys is next, and how a part is verified."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from partitioning.commands import BackfillAsking, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, at_once
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Difference, SwapKind
from partitioning.model.journal import as_time
from partitioning.model.meaning import Meaning
from partitioning.model.verification import PARTS, Verification, VerifiedSamples
from partitioning.sections import many

if TYPE_CHECKING:
    from partitioning.authoring.pipeline import Pipeline

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
    differ, as far as that is known."""

    table: str
    batch: int
    means: Meaning
    found: Difference | str
    part: KeyPart = ALL
    version: int | None = None
    since: int = 0
    reasons: tuple[str, ...] = ()
    replaces: bool = False

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


def verify_and_remember(
    pipeline: Pipeline,
    store: Store,
    tables: Collection[str],
    sample: KeyPart | NextPart,
    say: Callable[[str], object],
    docs: Path | None = None,
) -> Iterator[Verified]:
    """Hold tables against their queries, as `verify` does, and remember and report what was found of each.

    Raises as `verify`. If the store cannot be written, it says so; if the next part is asked for, it raises.
    """
    from coset.batches.verifying import verify  # noqa: PLC0415  Airflow parses what imports this

    ledger = Ledger(store, pipeline.name)

    def part(table: str) -> KeyPart:
        if isinstance(sample, KeyPart):
            return sample
        return KeyPart(ledger.verifications(table).next_of(sample.of), sample.of)

    swaps, refused = _swaps(ledger), None
    try:
        for each in verify(pipeline, store, tables, part):
            yield each
            _remember(ledger, each, swaps, None if isinstance(sample, NextPart) else say)
            # Those of now may have come while this table was read.
            swaps = _swaps(ledger)
    except Refused as refusal:
        refused = refusal
    _report(ledger, docs, say)
    if refused:
        raise refused


def differs(pipeline: str, each: Verified) -> Finding:
    """The finding on a table that differs from its query."""
    found = each.difference
    assert found is not None
    of = "" if each.part.of == 1 else f" of part {each.part}"
    what = f"of {many(found.keys, 'key')}{of} other rows are published than the query gives"
    what = "; ".join([what, *each.reasons])
    where = f"table {each.table!r} after batch {each.batch}"
    first = each.since if each.replaces else 0
    then: Then = ("run its batches again and compare: ", BackfillAsking(pipeline, first, cascade=True))
    if not each.means.is_query and not each.replaces:
        what = f"{what}: in step {each.means.step}, {each.means.why}"
        then = each.means.instead
    return Finding.of(Kind.TABLE_DIFFERS, what, where, then, table=each.table, keys=found.keys, batch=each.batch)


def _remember(ledger: Ledger, found: Verified, swaps: int, say: Callable[[str], object] | None) -> None:
    from spark_jobs.engine.occasions import now  # noqa: PLC0415

    if found.difference is None:
        return
    # Rows may differ that have no key.
    keys = max(found.difference.keys, 1) if found.is_wrong else 0
    made = Verification(found.part.residue, found.part.of, found.batch, keys, now(), swaps, found.since)
    try:
        ledger.put_verification(found.table, made)
    except CosetError as error:
        if say is None:
            raise
        say(f"Nobody remembers this of table {found.table}: {error.findings[0].what}")


def verified_samples(ledger: Ledger, tables: Collection[str]) -> dict[str, VerifiedSamples]:
    """How much of each of these tables is known to be its query, of those that somebody has verified."""
    known = at_once(ledger.verifications, list(tables))
    if not any(each.last for each in known):
        return {}
    swaps = _swaps(ledger)
    stand = {each.table: each.samples(swaps) for each in known}
    return {table: each for table, each in stand.items() if each}


def differing(ledger: Ledger) -> bool:
    """Whether some part of a table that the pipeline writes is known to differ from its query."""
    published = ledger.standing().published
    tables = [write.declared.table for write in published.writes()] if published else []
    return any(each.differing for each in at_once(ledger.verifications, tables))


def told(ledger: Ledger, tables: Collection[str]) -> Mapping[str, str]:
    """The same as `verified_samples` in words, for pages: by what is known now, and when a table was looked at last."""
    return {table: f"{each} ({as_time(each.at)})" for table, each in verified_samples(ledger, tables).items()}


def _report(ledger: Ledger, docs: Path | None, say: Callable[[str], object]) -> None:
    """Say on the page of the batch that was published last, and in the index, how much of its tables is verified."""
    from coset.reports import batch_index  # noqa: PLC0415
    from coset.reports.site import Site  # noqa: PLC0415

    try:
        if published := ledger.standing().published:
            found = told(ledger, [write.declared.table for write in published.writes()])
            site = Site.shown(docs, ledger.store, ledger.pipeline)
            batch_index.verified(site, ledger.pipeline, published.batch, found)
    except CosetError as error:
        say(f"The pages do not say it: {error.findings[0].what}")


def _swaps(ledger: Ledger) -> int:
    """How many swaps have put the rows of backfills in place, or back."""
    from coset.batches.backfills.swaps import swaps  # noqa: PLC0415

    return sum(each.turn is not SwapKind.CANCEL for each in swaps(ledger.store, ledger.pipeline))
