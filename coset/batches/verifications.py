"""Verifications: what is found of tables is remembered and reported, and which part of the keys is next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coset.batches.verified import KeyPart, NextPart, Verified
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, at_once
from partitioning.errors import CosetError, Refused
from partitioning.model.backfill import SwapKind
from partitioning.model.journal import as_time
from partitioning.model.verification import Verification, VerifiedSamples

if TYPE_CHECKING:
    from partitioning.authoring.pipeline import Pipeline


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
    tables = published.tables if published else []
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
            found = told(ledger, published.tables)
            site = Site.shown(docs, ledger.store, ledger.pipeline)
            batch_index.verified(site, ledger.pipeline, published.batch, found)
    except CosetError as error:
        say(f"The pages do not say it: {error.findings[0].what}")


def _swaps(ledger: Ledger) -> int:
    """How many swaps have put the rows of backfills in place, or back."""
    from coset.batches.backfills.swaps import swaps  # noqa: PLC0415

    return sum(each.turn is not SwapKind.CANCEL for each in swaps(ledger.store, ledger.pipeline))
