"""Verifying on the command line: whether published tables are their queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coset.batches.verifying import KeyPart, Verified
from coset.batches.verifying import verify as verified
from coset.cli import pipelines
from coset.cli.output import Answer, Block, Table
from partitioning.commands import BackfillAsking, Then
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.sections import many


def verify(named: str, root: str, tables: Sequence[str], part: KeyPart) -> Answer:
    """Hold the result tables of a pipeline against their queries."""
    pipeline = pipelines.load(named)
    found = list(verified(pipeline, store_at(root), pipelines.tables_of(pipeline, named, tables), part))
    differing = [_finding(pipeline.name, each, part) for each in found if each.difference and not each.difference.same]
    value = {"sample": str(part), "tables": [_plain(each) for each in found]}
    return Answer(value, _shown(found, part), Refused(*differing) if differing else None)


def _finding(pipeline: str, each: Verified, part: KeyPart) -> Finding:
    difference = each.difference
    assert difference is not None
    of = "" if part.of == 1 else f" of part {part}"
    what = f"of {many(difference.keys, 'key')}{of} other rows are published than the query gives"
    where = f"table {each.table!r} after batch {each.batch}"
    then: Then = ("run its batches again and compare: ", BackfillAsking(pipeline, 0, cascade=True))
    if not each.means.is_query:
        what = f"{what}: in step {each.means.step}, {each.means.why}"
        then = each.means.instead
    return Finding.of(Kind.TABLE_DIFFERS, what, where, then, table=each.table, keys=difference.keys, batch=each.batch)


def _plain(each: Verified) -> dict[str, object]:
    if each.difference is None:
        return {"table": each.table, "batch": each.batch, "equal": None, "why_not": each.found}
    published, query = each.difference.rows
    rows = {"published": published, "query": query, "keys": each.difference.keys}
    first = [dict(zip(("key", "published", "query"), row, strict=True)) for row in each.difference.first]
    return {"table": each.table, "batch": each.batch, "equal": each.difference.same} | rows | {"first": first}


def _shown(found: Sequence[Verified], part: KeyPart) -> Iterator[Block]:
    of_part = "" if part.of == 1 else f", part {part} of its keys"
    for each in found:
        if each.difference is None:
            yield f"Table {each.table} is not verified: {each.found}"
        elif each.difference.same:
            rows = many(each.difference.rows[0], "row")
            yield f"Table {each.table} is its query up to batch {each.batch}{of_part}: {rows}"
        else:
            published, query = each.difference.rows
            title = (
                f"Table {each.table} is not its query{of_part}: {published:,} rows are published, {query:,} are right"
            )
            yield Table(title, ("key", "published", "right"), each.difference.first_columns)
