"""A result table has one owner, which its log names: nobody else plans or publishes to it until it is handed over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner, Result

from coset.batches.attempt import Attempt
from coset.batches.planning import preview, take_up
from coset.batches.publication import decide, publish
from coset.batches.tables.compaction import compact
from coset.cli.main import app
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.sections import many
from spark_jobs.tables.table_schema import folder
from tests import late
from tests.batches import NAME, PASSED, decided, expected, pipeline, planned, rows, run
from tests.begun import Begun
from tests.forked import at_once
from tests.landed import land_table
from tests.logs import log_of
from tests.refused import finding_of, findings_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged

FIRST_ENTRY = "tables/delays/_delta_log/00000000000000000000.json"


def coset(store: Store, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--store", store.root])


def delta(store: Store, table: str = "delays") -> DeltaTable:
    return log_of(store, table)


def other(store: Store) -> Pipeline:
    """Another pipeline than `late`, that writes to the same table."""
    made = Pipeline("other", source=store.root)
    made.stream("flights", key="tailnum", partitions=4).select("delay").write("delays")
    return made


def without_owner(store: Store) -> None:
    """Make the table what one was that a version of Coset made which named no owners."""
    entry = [json.loads(line) for line in (store.get(FIRST_ENTRY) or b"").splitlines()]
    for action in entry:
        for name in ("coset.pipeline", "coset.store"):
            action.get("metaData", {}).get("configuration", {}).pop(name, None)
    store.put(FIRST_ENTRY, "\n".join(map(json.dumps, entry)).encode())


def test_a_table_of_another_pipeline_is_not_planned_for(store: Store) -> None:
    late.arrive(store, 0, 10)
    late.published(store)
    for plan in (take_up, preview):
        finding = finding_of(plan, other(store), store)
        assert finding.what == "the table belongs to pipeline 'late', not to 'other'"
        assert finding.where == folder(store, "delays")
        assert "`coset hand-over delays --from late --to other --why '…'`" in finding.then
    assert Ledger(store, "other").plan(0) is None


def test_a_table_of_another_pipeline_is_not_published_to(store: Store) -> None:
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


@pytest.mark.parametrize("made", [False, True])
def test_of_pipelines_that_write_first_or_adopt_a_table_at_the_same_time_one_has_it(made: bool, store: Store) -> None:
    if made:
        # By somebody who has given it no rows.
        columns = pa.schema([("tailnum", pa.string()), ("delay", pa.int64())])
        DeltaTable.create(folder(store, "delays"), columns, storage_options=storage_options())
    answers = at_once(6, partial(first_of, store.root))
    (winner,) = (answer for answer in answers if answer.startswith("pipeline-"))
    assert all(f"the table belongs to pipeline '{winner}'" in answer for answer in answers if answer != winner)
    assert rows(store.root) == expected(0)


def test_a_table_of_another_stores_pipeline_of_that_name_is_refused(store: Store) -> None:
    publish(*decided(store.root))
    copy = store_at(f"{store.root}/copy")
    for entry in list(store.list("tables/")):
        copy.put(entry.key, store.get(entry.key) or b"")
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails' of another store") as refused:
        decided(copy.root)
    assert "`coset hand-over delays --from tails --to tails --why '…'`" in refused.value.findings[0].then
    handed = coset(copy, "hand-over", "delays", "--from", NAME, "--to", NAME, "--why", "it was copied")
    assert handed.stdout == "Table delays belongs to pipeline tails of this store now\n"


def test_a_table_of_an_older_version_is_of_who_wrote_it(store: Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    without_owner(store)
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'another'"):
        publish(*decided(store.root, named="another"))
    publish(*decided(store.root, batch=1, before=first))
    assert delta(store).metadata().configuration["coset.pipeline"] == NAME
    assert rows(store.root) == sorted(expected(0) + expected(1))


def test_a_table_of_an_older_version_that_several_wrote_is_of_nobody_until_it_is_handed_over(store: Store) -> None:
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
    decide(Attempt(ledger, second := planned(pipeline(), 1, first), 0), PASSED)
    publish(ledger, second)


def handed_over(store: Store, before: str, to: str, table: str = "delays") -> None:
    done = coset(store, "hand-over", table, "--from", before, "--to", to, "--why", "its turn")
    assert done.exit_code == 0, done.output


def kinds(plan: Callable[[], object]) -> set[Kind]:
    with pytest.raises(Refused) as caught:
        plan()
    return {finding.kind for finding in caught.value.findings}


def accepted(store: Store, table: str = "delays") -> None:
    version = str(delta(store, table).version())
    done = coset(store, "accept-changes", table, "--up-to", version, "--why", "twice is right")
    assert done.exit_code == 0, done.output


@dataclass(frozen=True)
class Successor:
    """A pipeline that gets the table, what it reads, how many records `before` the end of each partition it begins, and
    how many it would append again; 0 if none."""

    stream: str = "flights"
    table: str = "delays"
    mode: WriteMode = "append"
    before: int | None = None
    again: int = 0

    def pipeline(self, store: Store) -> Pipeline:
        made = Pipeline("other", source=store.root)
        flights = made.stream(self.stream, key="tailnum", partitions=4)
        flights.select("delay").to_stream().write(self.table, mode=self.mode)
        return made


@pytest.mark.parametrize(
    "case",
    [
        Successor(again=20),
        Successor(stream="others"),
        Successor(mode="replace"),
        Successor(table="elsewhere"),
        Successor(before=0),
        Successor(before=1, again=4),
    ],
    ids=str,
)
def test_what_an_earlier_owner_appended_is_not_appended_again_unasked(store: Store, case: Successor) -> None:
    def arrive(stream: str) -> None:
        tails = [f"N{number}" for number in range(20)]
        table = pa.table({"tailnum": tails, "delay": pa.array(range(20), pa.int64())})
        land_table(table, stream, store.root, key="tailnum", partitions=4)

    def publish(made: Pipeline, settings: Settings = DEFAULTS) -> Plan:
        ref = next_batch(made, store.root, settings)
        run_and_publish_unjudged(ref)
        return ref.load()[1]

    arrive("flights")
    arrive("others")
    ends = {part.partition: part.end for part in publish(late.pipeline(store.root)).stream("flights").partitions}
    handed_over(store, "late", "other")
    begun = {} if case.before is None else {f"flights-{part}": end - case.before for part, end in ends.items()}
    settings = Settings(starts=begun)
    plan = partial(preview, case.pipeline(store), store, settings)
    if not case.again:
        arrive(case.stream)
        assert plan().plan is not None
        return
    finding = finding_of(plan)
    assert (finding.kind, finding.where) == (Kind.TABLE_AGAIN, folder(store, "delays"))
    assert f"of {many(case.again, 'record')} of flights" in finding.what
    told = ", ".join(f"flights-{part} = {ends[part]}" for part in sorted(ends, key=str))
    assert f"[starts] {told} in the settings" in finding.then
    accepted(store)
    assert plan().plan is not None
    # What comes anew is nobody's, and would be of both if the first one got the table back.
    publish(case.pipeline(store), settings)
    arrive("flights")
    publish(case.pipeline(store))
    handed_over(store, "other", "late")
    assert kinds(partial(preview, late.pipeline(store.root), store)) == {Kind.TABLE_AGAIN}


@pytest.mark.long
def test_a_table_that_is_handed_over_and_back_has_the_rows_of_both(store: Store) -> None:
    late.arrive(store, 0, 10)
    late.published(store)
    handed_over(store, "late", "other")
    # It reads the same flights as `late` did.
    assert kinds(partial(take_up, other(store), store)) == {Kind.TABLE_AGAIN}
    accepted(store)
    run_and_publish(next_batch(other(store), store.root))
    late.arrive(store, 10, 10)
    for plan in (take_up, preview):
        assert kinds(partial(plan, late.pipeline(store.root), store)) == {Kind.TABLE_OWNER}
    handed_over(store, "other", "late")
    late.published(store)
    late.arrive(store, 20, 10)
    late.published(store)
    # A batch of `late` is made by hand, and has forty.
    assert len(rows(store.root)) == 40 + 10 + 40 + 40
    assert kinds(partial(take_up, other(store), store)) == {Kind.TABLE_OWNER}


class Totals:
    """Two pipelines that upsert totals by tail number to one table, each of flights of its own."""

    def __init__(self, store: Store, docs: Path | None) -> None:
        self.store = store
        self._docs = docs

    def pipeline(self, name: str) -> Pipeline:
        made = Pipeline(name, source=self.store.root)
        flights = made.stream(f"of_{name}", key="tailnum", partitions=4)
        counted = flights.aggregate("count(*) AS n", name="counted")
        counted.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
        return made

    def arrive(self, name: str, *tails: str) -> None:
        table = pa.table({"tailnum": list(tails), "delay": pa.array([1] * len(tails), pa.int64())})
        land_table(table, f"of_{name}", self.store.root, key="tailnum", partitions=4)

    def publish(self, name: str, settings: Settings = DEFAULTS) -> None:
        run_and_publish(next_batch(self.pipeline(name), self.store.root, settings), self._docs)

    def refused(self, name: str) -> list[Finding]:
        return list(findings_of(preview, self.pipeline(name), self.store))

    def rows(self) -> dict[str, int]:
        there = delta(self.store, "totals").to_pyarrow_table()
        return dict(zip(there["tailnum"].to_pylist(), there["n"].to_pylist(), strict=True))


TAILS = [f"N{number}" for number in range(40)]


@pytest.fixture
def totals(begun: Begun, tmp_path: Path) -> Totals:
    return Totals(begun.by(of_one), tmp_path)


def of_one(store: Store) -> None:
    """A table of `one`, which gives it to `two`, for which flights have arrived."""
    made = Totals(store, None)
    made.arrive("one", *TAILS)
    made.publish("one")
    handed_over(store, "one", "two", "totals")
    made.arrive("two", "N1", "N77")


def test_a_new_owner_whose_step_keeps_nothing_empties_a_table_only_if_that_is_asked_for(totals: Totals) -> None:
    (finding,) = totals.refused("two")
    assert finding.kind is Kind.STATE_BEGINS
    assert finding.what.endswith(
        "table 'totals' has 40 rows and would have only those of keys of what its streams still have, "
        "read from their start"
    )
    assert finding.where == "step 'totals', which no batch had"
    assert "--begin-anew totals`" in finding.then
    assert len(totals.rows()) == 40
    totals.publish("two", Settings(begin_anew=("totals",)))
    assert totals.rows() == {"N1": 1, "N77": 1}


def test_rows_that_another_owner_upserted_do_not_go_in_silence(totals: Totals) -> None:
    totals.publish("two", Settings(begin_anew=("totals",)))
    assert {finding.kind for finding in totals.refused("one")} == {Kind.TABLE_OWNER}
    handed_over(totals.store, "two", "one", "totals")
    totals.arrive("one", "N2")
    (finding,) = totals.refused("one")
    assert finding.kind is Kind.TABLE_CHANGED
    assert finding.what.startswith("version 3 of the table is not by pipeline 'one': batch 0 of pipeline 'two', ")
    assert {finding.kind for finding in totals.refused("two")} == {Kind.TABLE_OWNER}
    # What it says first: its own rows come back.
    version = re.search(r"\.restore\((\d+)\)`", finding.then)
    assert version
    delta(totals.store, "totals").restore(int(version[1]))
    totals.publish("one")
    assert totals.rows() == dict.fromkeys(TAILS, 1) | {"N2": 2}
    totals.arrive("one", "N3")
    totals.publish("one")
    assert totals.rows() == dict.fromkeys(TAILS, 1) | {"N2": 2, "N3": 2}


@pytest.mark.long
def test_rows_that_another_owner_upserted_stay_if_that_is_asked_for(totals: Totals) -> None:
    totals.publish("two", Settings(begin_anew=("totals",)))
    handed_over(totals.store, "two", "one", "totals")
    totals.arrive("one", "N2")
    (finding,) = totals.refused("one")
    assert "`coset accept-changes totals --up-to 4 --why '…'`" in finding.then
    done = coset(totals.store, "accept-changes", "totals", "--up-to", "4", "--why", "both are right")
    assert done.exit_code == 0, done.output
    totals.publish("one")
    assert totals.rows()["N2"] == 2
    totals.arrive("one", "N3")
    totals.publish("one")
    assert totals.rows()["N3"] == 2


def test_a_table_that_has_rows_of_nobody_knows_whom_is_refused(store: Store) -> None:
    late.arrive(store, 0, 10)
    mine = pa.table({"tailnum": ["N1"], "delay": pa.array([1], pa.int64())})
    write_deltalake(folder(store, "delays"), mine, storage_options=storage_options())
    with pytest.raises(Refused, match="the table has rows that no pipeline wrote") as refused:
        take_up(other(store), store)
    assert "`coset hand-over delays --to other --why '…'`" in refused.value.findings[0].then
    assert coset(store, "hand-over", "delays", "--to", "other", "--why", "imported").exit_code == 0
    assert take_up(other(store), store).plan is not None


def test_a_table_is_handed_over_with_who_and_why(store: Store) -> None:
    publish(*decided(store.root))
    handed = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "it was renamed")
    assert handed.stdout == "Table delays belongs to pipeline another now, and no longer to tails\n"
    entry = delta(store).history(1)[0]
    assert (entry["coset.from"], entry["coset.to"], entry["coset.why"]) == (NAME, "another", "it was renamed")
    assert entry["coset.who"]
    assert rows(store.root) == expected(0)
    # It may be said again.
    again = coset(store, "hand-over", "delays", "--from", NAME, "--to", "another", "--why", "again", "--json")
    assert json.loads(again.stdout) == {"table": "delays", "from": NAME, "to": "another"}
    assert delta(store).history(1)[0]["coset.why"] == "it was renamed"
    with pytest.raises(Refused, match="the table belongs to pipeline 'another', not to 'tails'"):
        publish(*decided(store.root, batch=1, before=Ledger(store, NAME).plan(0)))


def test_a_table_is_not_handed_over_from_somebody_else_or_while_a_batch_is_open(store: Store) -> None:
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


def test_a_table_of_another_pipeline_is_not_compacted(store: Store) -> None:
    publish(*decided(store.root))
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'other'"):
        compact(other(store), store, timedelta(days=7))


def test_a_batch_that_is_not_checked_yet_is_refused_before_it_is_decided(store: Store) -> None:
    ledger = Ledger(store, "another")
    plan = ledger.put_plan(planned(pipeline(named="another")))
    run(ledger, plan)
    publish(*decided(store.root))
    with pytest.raises(Refused, match="the table belongs to pipeline 'tails', not to 'another'"):
        decide(Attempt(ledger, plan, 0), PASSED)
    assert ledger.verdict(0) is None
