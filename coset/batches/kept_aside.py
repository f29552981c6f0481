"""Records that were set aside, by the files that verdicts name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coset.batches.attempt import Attempt
from coset.sources.s3 import AGAIN, reaching
from coset.sources.unusable import rows_in
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.figures import figures_of
from partitioning.model.plan import Plan


def count_aside(ledger: Ledger, plan: Plan) -> int:
    """How many records a published batch set aside. Its receipts are read only if there are any."""
    attempt = Attempt.published(ledger, plan)
    if attempt is None or all(file.role is not Role.SET_ASIDE for file in attempt.artefacts):
        return 0
    return figures_of(plan, tuple(attempt.receipts.values())).set_aside


def set_aside_in(ledger: Ledger, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """The records that a batch set aside, each once, by stream, partition and offset: of the attempt that is published,
    or of the newest that has run. `SET_ASIDE_COLUMNS` has the columns.

    Raises Refused if a file is gone or damaged.
    """
    newest = ledger.attempt(plan.batch)
    tried = (Attempt(ledger, plan, number) for number in range(newest, -1, -1))
    attempt = Attempt.published(ledger, plan) or next((each for each in tried if not each.missing), None)
    found: dict[tuple[str, int, int], Mapping[str, Any]] = {}
    files = attempt.artefacts if attempt is not None else ()
    for file in (file for file in files if file.role is Role.SET_ASIDE):
        for row in _rows(ledger, file):
            # Several stages may read a stream, and each sets the same aside.
            found.setdefault((row["stream"], row["partition"], row["offset"]), row)
    yield from (found[place] for place in sorted(found))


def _rows(ledger: Ledger, file: Artefact) -> list[dict[str, Any]]:
    data, where = ledger.store.get(file.path), ledger.uri(file.path)
    if data is None:
        what, then = "the records that were set aside are gone", "restore the file from a backup"
        raise Refused.of(Kind.TASK_FILES, what, where, then, file=file.path)
    with reaching("the file cannot be read", where, AGAIN):
        return rows_in(data)
