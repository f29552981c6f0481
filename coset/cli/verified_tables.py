"""Verifying on the command line: whether published tables are their queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coset.batches.tables.logs import Logs
from coset.batches.tables.others import check_untouched
from coset.batches.verifications import verify_and_remember
from coset.batches.verified import KeyPart, NextPart, Verified, differs
from coset.batches.verifying import verify as held
from coset.cli import pipelines
from coset.cli.output import Answer, Block, Table
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind


def verify(named: str, root: str, tables: Sequence[str], sample: KeyPart | NextPart, as_of: int | None) -> Answer:
    """Hold the result tables of a pipeline against their queries, and remember what was found of those of now."""
    pipeline, store = pipelines.load(named), store_at(root)
    asked, notes = pipelines.tables_of(pipeline, named, tables), list[str]()
    found, refused = list[Verified](), list[Finding]()
    try:
        # Findings from before an error stay.
        found.extend(_found(pipeline, store, asked, sample, as_of, notes))
    except Refused as refusal:
        refused += refusal.findings
    value = {"sample": str(sample), "tables": [_plain(each) for each in found]}
    different = {each.table for each in found if each.is_wrong}
    if different and as_of is None:
        try:
            # Changes of others are undone, or accepted, before anything makes the rows anew.
            writes = [write for write in pipeline.writes if write.table in different]
            check_untouched(store, pipeline.name, writes, Logs())
        except Refused as refusal:
            refused[:0] = refusal.findings
    others = {dict(each.about).get("table") for each in refused if each.kind is Kind.TABLE_CHANGED}
    differing = (differs(pipeline.name, each, changed=each.table in others) for each in found if each.is_wrong)
    wrong = [*refused, *differing]
    return Answer(value, [*_shown(found), *notes], Refused(*wrong) if wrong else None)


def _found(
    pipeline: Pipeline,
    store: Store,
    tables: Sequence[str],
    sample: KeyPart | NextPart,
    as_of: int | None,
    notes: list[str],
) -> Iterator[Verified]:
    if as_of is None:
        return verify_and_remember(pipeline, store, tables, sample, notes.append)
    if isinstance(sample, NextPart):
        what = "what a batch published is not remembered, so no part of it is the next"
        raise Refused.of(Kind.ARGUMENT, what, "--sample", "name a part, such as 3/16", sample=str(sample))
    return held(pipeline, store, tables, sample, as_of)


def _plain(each: Verified) -> dict[str, object]:
    of = {"table": each.table, "batch": each.batch, "sample": str(each.part)}
    of |= {} if each.version is None else {"version": each.version}
    of |= {} if each.accepted < 0 else {"accepted": each.accepted}
    if each.difference is None:
        return of | {"equal": None, "why_not": each.found}
    published, query = each.difference.rows
    rows = {"published": published, "query": query, "keys": each.difference.keys}
    first = [dict(zip(("key", "published", "query"), row, strict=True)) for row in each.difference.first]
    return of | {"equal": each.difference.same} | rows | {"first": first, "reasons": list(each.reasons)}


def _shown(found: Sequence[Verified]) -> Iterator[Block]:
    for each in found:
        columns = "key", "published", "right"
        yield (
            Table(str(each), columns, each.difference.first_columns) if each.is_wrong and each.difference else str(each)
        )
