"""The page of a backfill: how its rows differ from those that readers saw, and what was decided on it since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from coset.reports import batch_index
from coset.reports.next_steps import shown
from coset.reports.site import Site
from coset.reports.templates import template
from partitioning.commands import SwapAsking, Then, Undo
from partitioning.documents.document import digest
from partitioning.errors import Finding
from partitioning.model.backfill import Comparison, StateComparison, Swap, SwapKind, TableComparison


def put_comparison(site: Site, found: Comparison, blockers: Sequence[Finding] = (), decided: Swap | None = None) -> str:
    """Write the page, with the blockers of the swap and the last decision on it, and the index. Returns the page's path
    in the folder."""
    written = put_page(site, found, blockers, decided)
    row = {"number": found.backfill, "summary": str(found), "same": found.same, "page": _name(found)}
    batch_index.compare(site, found.pipeline, row, [batch for batch, _, _ in found.plans])
    return written


def put_page(site: Site, found: Comparison, blockers: Sequence[Finding] = (), decided: Swap | None = None) -> str:
    """The same without the index."""
    sides: list[tuple[int, str, TableComparison | StateComparison]]
    sides = [(table.batch, table.table, table) for table in found.tables]
    sides += [(found.plans[-1][0], str(state), state) for state in found.states]
    text = template("backfill.html").render(
        found=found,
        sides=sides,
        blockers=blockers,
        digest=digest(found),
        decided=_said(decided) if decided else "",
        then=_then(found, decided),
        says=shown().says,
    )
    site.store.put(f"{found.pipeline}/docs/{_name(found)}", text.encode())
    return str(site.write(found.pipeline, _name(found), text))


def _name(found: Comparison) -> str:
    return f"backfill-{found.backfill}.html"


def _said(decided: Swap) -> str:
    """What was decided, by whom and why."""
    match decided.turn:
        case SwapKind.SWAP:
            what = "It is in place: readers see its rows"
        case SwapKind.UNDO:
            what = "It was taken back: readers see the rows of before it"
        case SwapKind.CANCEL:
            what = "It was cancelled: readers never saw its rows"
        case _:
            assert_never(decided.turn)
    return f"{what}. {decided.who}, {decided.at}" + (f": {decided.why}" if decided.why else "")


def _then(found: Comparison, decided: Swap | None) -> Then:
    """What can be done about it next."""
    put = SwapAsking(found.pipeline, found.backfill, digest(found))
    if decided is None:
        looked = (
            "look at what differs. If it is as it should be, ",
            put,
            " puts it in place. Readers see nothing of it before",
        )
        return looked if found.needs_approval else ""
    match decided.turn:
        case SwapKind.SWAP:
            return Undo(found.pipeline, found.backfill), " takes it back"
        case SwapKind.UNDO:
            return put, " puts it in place again"
        case SwapKind.CANCEL:
            return ""
        case _:
            assert_never(decided.turn)
