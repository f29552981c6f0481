"""A result table has one owner, which its log names: nobody else plans or publishes to it until it is handed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner, Result

from batches.compaction import compact
from batches.planning import preview, take_up
from batches.publication import decide, publish
from cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.errors import Refused
from sources.s3 import storage_options
from spark_jobs.table_schema import folder
from tests import late
from tests.batches import NAME, PASSED, decided, expected, pipeline, planned, rows, run
from tests.forked import at_once

FIRST_ENTRY = "tables/delays/_delta_log/00000000000000000000.json"


def coset(store: S3Store, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--store", store.root])


def delta(store: S3Store, table: str = "delays") -> DeltaTable:
    return DeltaTable(folder(store.root, table), storage_options=storage_options())


def other(store: S3Store) -> Pipeline:
    """Another pipeline than `late`, that writes to the same table."""
    made = Pipeline("other", source=store.root)
    made.stream("flights", key="tailnum", partitions=4).select("delay").write("delays")
    return made


def without_owner(store: S3Store) -> None:
    """Make the table what one was that a version of Coset made which named no owners."""
    entry = [json.loads(line) for line in (store.get(FIRST_ENTRY) or b"").splitlines()]
    for action in entry:
        for name in ("coset.pipeline", "coset.store"):
            action.get("metaData", {}).get("configuration", {}).pop(name, None)
    store.put(FIRST_ENTRY, "\n".join(map(json.dumps, entry)).encode())


def test_a_table_of_another_pipeline_is_not_planned_for(store: S3Store) -> None:
    late.arrive(store, 0, 10)
    late.published(store)
    for plan in (take_up, preview):
        with pytest.raises(Refused) as refused:
            plan(other(store), store)
        (finding,) = refused.value.findings
        assert finding.what == "the table belongs to pipeline 'late', not to 'other'"
        assert finding.where == folder(store.root, "delays")
        assert "`coset hand-over delays --from late --to other --why '…'`" in finding.then
    assert Ledger(store, "other").plan(0) is None


def test_a_table_of_another_pipeline_is_not_published_to(store: S3Store) -> None:
    ledger, plan = decided(store.root, named="another")
    publish(*decided(store.root))
    before = delta(store).version()
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'another'"):
        publish(ledger, plan)
    assert (delta(store).version(), rows(store.root)) == (before, expected(0))
    # As it says.
    handed = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "it was renamed")
    assert handed.exit_code == 0, handed.output
    publish(ledger, plan)
    assert len(rows(store.root)) == 2 * len(expected(0))


def first_of(root: str, number: int) -> Callable[[], str]:
    """What a process does that has the first batch of a pipeline of its own to publish."""
    ledger, plan = decided(root, named=f"pipeline-{number}")

    def answer() -> str:
        try:
            publish(ledger, plan)
        except Refused as refusal:
            return str(refusal)
        return ledger.pipeline

    return answer


def test_of_pipelines_that_write_first_at_the_same_time_one_has_the_table(store: S3Store) -> None:
    answers = at_once(6, partial(first_of, store.root))
    (winner,) = (answer for answer in answers if answer.startswith("pipeline-"))
    assert all(f"the table belongs to pipeline '{winner}'" in answer for answer in answers if answer != winner)
    assert rows(store.root) == expected(0)


def test_of_pipelines_that_adopt_a_table_at_the_same_time_one_has_it(store: S3Store) -> None:
    # Somebody has made it, and given it no rows.
    DeltaTable.create(
        folder(store.root, "delays"),
        pa.schema([("tailnum", pa.string()), ("delay", pa.int64())]),
        storage_options=storage_options(),
    )
    answers = at_once(6, partial(first_of, store.root))
    (winner,) = (answer for answer in answers if answer.startswith("pipeline-"))
    assert all(f"the table belongs to pipeline '{winner}'" in answer for answer in answers if answer != winner)
    assert rows(store.root) == expected(0)


def test_a_table_of_another_stores_pipeline_of_that_name_is_refused(store: S3Store) -> None:
    publish(*decided(store.root))
    copy = S3Store(f"{store.root}/copy")
    for entry in list(store.list("tables/")):
        copy.put(entry.key, store.get(entry.key) or b"")
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails' of another store") as refused:
        decided(copy.root)
    assert "`coset hand-over delays --from tails --to tails --why '…'`" in refused.value.findings[0].then


def test_a_table_of_an_older_version_is_of_who_wrote_it(store: S3Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    without_owner(store)
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'another'"):
        publish(*decided(store.root, named="another"))
    publish(*decided(store.root, batch=1, before=first))
    assert delta(store).metadata().configuration["coset.pipeline"] == NAME
    assert rows(store.root) == sorted(expected(0) + expected(1))


def test_a_table_of_an_older_version_that_several_wrote_is_of_nobody_until_it_is_handed_over(store: S3Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    handed = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "try")
    assert handed.exit_code == 0, handed.output
    another, theirs = decided(store.root, named="another")
    publish(another, theirs)
    table = delta(store)
    # As if nobody had ever been named.
    for version in range(table.version() + 1):
        entry = f"tables/delays/_delta_log/{version:020}.json"
        lines = (store.get(entry) or b"").decode().splitlines()
        kept = []
        for action in map(json.loads, lines):
            for name in ("coset.pipeline", "coset.store"):
                action.get("metaData", {}).get("configuration", {}).pop(name, None)
            kept.append(json.dumps(action))
        store.put(entry, "\n".join(kept).encode())
    with pytest.raises(Refused, match="the pipelines 'another' and 'tails' wrote to the table, and it names no owner"):
        decided(store.root, batch=1, before=first)
    handed = coset(store, "hand-over", "delays", "--to", NAME, "--why", "the other one is gone")
    assert handed.exit_code == 0, handed.output
    decide(ledger, second := planned(pipeline(), 1, first), 0, PASSED)
    publish(ledger, second)


def test_a_table_that_has_rows_of_nobody_knows_whom_is_refused(store: S3Store) -> None:
    late.arrive(store, 0, 10)
    mine = pa.table({"tailnum": ["N1"], "delay": pa.array([1], pa.int64())})
    write_deltalake(folder(store.root, "delays"), mine, storage_options=storage_options())
    with pytest.raises(Refused, match="the table has rows that no pipeline wrote") as refused:
        take_up(other(store), store)
    assert "`coset hand-over delays --to other --why '…'`" in refused.value.findings[0].then
    assert coset(store, "hand-over", "delays", "--to", "other", "--why", "imported").exit_code == 0
    assert take_up(other(store), store).plan is not None


def test_a_table_is_handed_over_with_who_and_why(store: S3Store) -> None:
    publish(*decided(store.root))
    handed = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "it was renamed")
    assert handed.stdout == "Table delays belongs to pipeline another now, and no longer to tails\n"
    entry = delta(store).history(1)[0]
    assert (entry["coset.from"], entry["coset.to"], entry["coset.why"]) == (NAME, "another", "it was renamed")
    assert entry["coset.who"]
    assert rows(store.root) == expected(0)
    # It may be said again.
    assert coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "again").exit_code == 0
    assert delta(store).history(1)[0]["coset.why"] == "it was renamed"
    with pytest.raises(Refused, match="the table belongs to pipeline 'another', not to 'tails'"):
        publish(*decided(store.root, batch=1, before=Ledger(store, NAME).plan(0)))


def test_a_table_is_not_handed_over_from_somebody_else_or_while_a_batch_is_open(store: S3Store) -> None:
    nothing = coset(store, "hand-over", "delays", "--to", "another", "--why", "there is none")
    assert (nothing.exit_code, "there is no such table" in nothing.output) == (3, True)
    ledger, plan = decided(store.root)
    publish(ledger, plan)
    wrong = coset(store, "hand-over", "delays", "--from", "third", "--to", "another", "--why", "mistaken")
    assert (wrong.exit_code, "the table belongs to pipeline 'tails', not to 'third'" in wrong.output) == (3, True)
    ledger.put_plan(planned(pipeline(), 1, plan))
    busy = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "too early")
    assert (busy.exit_code, "batch 1 of tails is open, and writes to the table" in busy.output) == (3, True)
    assert delta(store).metadata().configuration["coset.pipeline"] == NAME
    empty = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", " ")
    assert (empty.exit_code, "the reason is empty" in empty.output) == (3, True)


def test_a_table_of_another_pipeline_is_not_compacted(store: S3Store) -> None:
    publish(*decided(store.root))
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'other'"):
        compact(other(store), store, timedelta(days=7))


def test_a_batch_that_is_not_checked_yet_is_refused_before_it_is_decided(store: S3Store) -> None:
    ledger = Ledger(store, "another")
    plan = ledger.put_plan(planned(pipeline(named="another")))
    run(ledger, plan)
    publish(*decided(store.root))
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'another'"):
        decide(ledger, plan, 0, PASSED)
    assert ledger.verdict(0) is None
