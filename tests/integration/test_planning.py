"""Taking up a batch: the stored plan is used, whoever requests what how often; and what changed since another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from coset.batches.planning import preview, take_up
from coset.batches.publication import abandon, publish
from coset.cli.pipelines import load
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.reasons import CountChange
from partitioning.model.schemes import Scheme, elastic
from partitioning.model.stage_inputs import ExchangeInput
from partitioning.planning.partitioners.key_shares import Share
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext
from tests.batches import erase
from tests.commands import coset, succeeded
from tests.forked import at_once
from tests.landed import land_table
from tests.late import arrive, decided, pipeline, published
from tests.there import there


def test_the_first_batch_takes_everything_there_is_and_is_stored(store: Store) -> None:
    arrive(store, 0, 100)
    taken = take_up(pipeline(store.root), store)
    assert taken.plan is not None
    assert (taken.plan.batch, taken.plan.parent, taken.plan.records) == (0, None, 100)
    assert taken.sentence == "Batch 0 is planned: 100 records in 2 task groups"
    assert Ledger(store, "late").plan(0) == taken.plan


def test_a_preview_stores_nothing(store: Store) -> None:
    arrive(store, 0, 10)
    before = list(store.list(""))
    assert preview(pipeline(store.root), store).plan is not None
    assert list(store.list("")) == before


def test_the_next_batch_starts_where_the_published_one_ended(store: Store) -> None:
    arrive(store, 0, 100)
    first = published(store)
    arrive(store, 100, 50)
    second = there(take_up(pipeline(store.root), store).plan)
    assert (second.batch, second.parent, second.records) == (1, digest(first), 50)
    assert [each.start for each in second.ranges()] == [each.end for each in first.ranges()]


def test_without_new_records_there_is_nothing_to_do(store: Store) -> None:
    arrive(store, 0, 1200)
    published(store)
    taken = take_up(pipeline(store.root), store)
    assert taken.plan is None
    nothing = "Nothing to do: no new records since batch 0 (all 1,200 landed records are committed)"
    assert taken.sentence == nothing
    changed = take_up(pipeline(store.root, "delay + 1 AS delay"), store).sentence
    step = "step flights.select changed from select: delay to select: delay + 1 AS delay"
    assert changed == f"{nothing}; new records go by the pipeline as it is now: {step}"


def test_an_open_batch_keeps_its_plan_whatever_arrives_or_is_asked_for_and_says_so(store: Store) -> None:
    arrive(store, 0, 100)
    first = take_up(pipeline(store.root), store)
    arrive(store, 100, 50)
    again = take_up(pipeline(store.root), store)
    assert again.plan == first.plan
    assert again.sentence == "Batch 0 is open: it continues as it was planned"
    again = take_up(pipeline(store.root), store, Settings.parse(scheme="tasks(3)", groups=4, limit=1))
    assert again.plan == first.plan
    assert (
        "the stored plan is used, the requested scheme and groups and limit ignored: replan the batch" in again.sentence
    )


def test_a_decided_batch_is_taken_up_until_its_publication_is_finished(store: Store) -> None:
    arrive(store, 0, 100)
    first = there(take_up(pipeline(store.root), store).plan)
    ledger = decided(store, first)
    taken = take_up(pipeline(store.root), store)
    assert taken.plan == first
    assert "not yet published: its publication continues" in taken.sentence
    publish(ledger, first)
    erase(store.root, "late/commits/0.json")
    assert take_up(pipeline(store.root), store).plan == first


def test_the_records_of_an_abandoned_batch_belong_to_the_next(store: Store) -> None:
    arrive(store, 0, 100)
    first = there(take_up(pipeline(store.root), store).plan)
    abandon(Ledger(store, "late"), "not wanted")
    second = there(take_up(pipeline(store.root), store).plan)
    assert (second.batch, second.parent, second.ranges()) == (1, digest(first), first.ranges())


def test_a_limit_bounds_what_a_batch_takes_and_the_next_takes_the_rest(store: Store) -> None:
    arrive(store, 0, 100)
    first = there(take_up(pipeline(store.root), store, Settings(limit=10)).plan)
    assert [len(each) for each in first.ranges()] == [10] * 4
    publish(decided(store, first), first)
    second = there(take_up(pipeline(store.root), store).plan)
    assert second.records == 60


def test_scheme_and_groups_are_those_asked_for(store: Store) -> None:
    arrive(store, 0, 100)
    plan = there(take_up(pipeline(store.root), store, Settings.parse(scheme="elastic(2)", groups=3)).plan)
    assert (plan.stages[0].scheme, plan.stages[0].cosets, len(plan.groups)) == (elastic(2), 8, 3)


def test_settings_that_a_stored_plan_does_not_follow_are_named_each(store: Store) -> None:
    arrive(store, 0, 100)
    take_up(pipeline(store.root), store, Settings(schemes={"flights": Scheme.parse("tasks(3)")}))
    asked = Settings(
        schemes={"flights.select": Scheme.parse("tasks(6)")},
        partitioners={"flights": "partitioning.planning.partitioners.partitioners:Even"},
        grouper="round-robin",
    )
    again = take_up(pipeline(store.root), store, asked)
    assert "the requested scheme and partitioner and grouper ignored: replan the batch" in again.sentence
    same = take_up(pipeline(store.root), store, Settings(schemes={"flights.select": Scheme.parse("tasks(3)")}))
    assert same.sentence == "Batch 0 is open: it continues as it was planned"


def grown(store: Store) -> Pipeline:
    """Flights in eight partitions, of which a batch of four was published."""
    arrive(store, 0, 100)
    published(store)
    made = Pipeline("late", source=store.root)
    made.stream("flights", key="tailnum", partitions=8).aggregate("max(delay) AS delay").write("latest")
    land_table(pa.table({"tailnum": ["N1"], "delay": [1]}), "flights", store.root, key="tailnum", partitions=8)
    return made


def test_a_changed_partition_count_is_read_by_what_both_counts_have_in_common(store: Store) -> None:
    plan = there(take_up(grown(store), store, Settings(begin_anew=("latest",))).plan)
    (read,) = plan.stages[0].streams
    assert (read.partitions, read.placement.partitions) == (8, 4)
    assert plan.stages[0].changes == (CountChange("flights", 4, 8),)
    assert Ledger(store, "late").plan(1) == plan


def test_a_changed_partition_count_may_need_records_to_move(store: Store) -> None:
    plan = there(take_up(grown(store), store, Settings.parse(scheme="tasks(8)", begin_anew=["latest"])).plan)
    (exchange,) = plan.exchanges
    assert str(exchange.placement) == "murmur2(tailnum) mod 8"
    (moved,) = (read for read in plan.stage(plan.stages[1].name).inputs if read.name == exchange.name)
    assert isinstance(moved, ExchangeInput)
    assert [column.name for column in moved.columns] == ["tailnum", "delay"]


def test_a_partitioner_hears_of_the_plan_once_it_is_stored(store: Store) -> None:
    arrive(store, 0, 100)
    made = Pipeline("late", source=store.root)
    made.stream("flights", key="tailnum", partitions=4).aggregate("max(delay) AS delay").write("delays")
    asked = Settings(partitioners={"flights": f"{__name__}:Listening"})
    preview(made, store, asked)
    assert Listening.heard == []
    take_up(made, store, asked)
    take_up(made, store, asked)
    assert [len(each.new) for each in Listening.heard] == [4]


class Listening:
    """One coset for each task, as there would be without it; it keeps what it was told."""

    heard: ClassVar[list[Changes]] = []

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> list[Share]:
        return [Share(context.cosets, (residue,)) for residue in range(context.cosets)]

    def accepted(self, changes: Changes) -> None:
        self.heard.append(changes)


def test_what_a_step_or_a_table_cannot_have_is_refused_and_nothing_is_stored(store: Store) -> None:
    arrive(store, 0, 10)
    with pytest.raises(Refused, match="there is no column 'dealy'") as caught:
        take_up(pipeline(store.root, "dealy"), store)
    assert "flights.select" in str(caught.value)
    assert "tailnum, delay, _offset" in str(caught.value)
    assert not list(store.list("late/"))
    with pytest.raises(Refused, match="'day' is INTERVAL"):
        take_up(pipeline(store.root, "INTERVAL 1 day AS day"), store)
    assert not list(store.list("late/"))


def planner(root: str, number: int) -> Callable[[], str]:
    """What a process does, which answers with the digest of the plan that it gets.

    Each asks for something else, so that their plans would differ.
    """
    made = Pipeline("late", source=root)
    made.stream("flights", key="tailnum", partitions=4).select("delay").write("delays")
    store, asked = store_at(root), Settings(groups=1 + number % 4, limit=1 + number)

    def plan() -> str:
        taken = there(take_up(made, store, asked).plan)
        return digest(taken)

    return plan


def test_sixteen_processes_that_plan_at_once_get_one_plan(store: Store) -> None:
    arrive(store, 0, 200)
    digests = at_once(16, partial(planner, store.root))
    stored = there(Ledger(store, "late").plan(0))
    assert digests == [digest(stored)] * 16
    assert [entry.key for entry in store.list("late/")] == ["late/journal/0/plan.json", "late/plans/0.json.gz"]


PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")


@pytest.fixture
def planned(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with some flights and planes, and the plan of a first batch, which was given up."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    tails = [f"N{number}" for number in range(20)]
    for stream, column, partitions in (("flights", "delay", 4), ("planes", "seats", 2)):
        table = pa.table({"tailnum": tails, column: pa.array(range(20), pa.int64())})
        land_table(table, stream, f"{store.root}/topics", key="tailnum", partitions=partitions)
    succeeded("plan", PIPELINE)
    abandon(Ledger(store, load(PIPELINE).name), "to plan another")
    return store


def test_batches_are_compared_with_each_other_by_number_and_uri_and_with_what_would_be_next(planned: Store) -> None:
    result = succeeded("diff", PIPELINE, "0", "next", "--scheme", "tasks(4)")
    assert result.stdout.startswith("delays, batch 0 (sha256:")
    assert "scheme cogroup → tasks(4)" in result.stdout
    assert "Results stay the same" in result.stdout
    assert not planned.head("delays/plans/1.json.gz")
    succeeded("plan", PIPELINE, "--scheme", "tasks(4)")
    by_number = json.loads(coset("diff", PIPELINE, "0", "1", "--json").stdout)
    uris = [f"{planned.root}/delays/plans/{number}.json.gz" for number in (0, 1)]
    assert json.loads(coset("diff", *uris, "--json").stdout) == by_number
    assert {each["keys"] for each in by_number["handovers"]} == {"1/2"}


def test_a_batch_that_there_is_not_and_a_word_that_is_none_are_refused(planned: Store) -> None:
    for words, what in (
        ((PIPELINE, "0", "9"), "there is no batch 9 of delays"),
        ((PIPELINE, "next", "0"), "'next' is no batch number"),
        ((f"{planned.root}/delays/plans/9.json.gz", PIPELINE), "there is no such plan"),
    ):
        result = coset("diff", *words)
        assert (result.exit_code, result.stdout) == (3, "")
        assert what in result.stderr


def test_explain_draws_a_picture_or_prints_a_flowchart(planned: Store, tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    result = succeeded("explain", PIPELINE, "--batch", "0", "--svg", str(file))
    assert f"Drawn as {file}" in result.stdout
    assert "Stage flights+planes" in result.stdout
    assert ElementTree.parse(file).getroot().get("role") == "img"
    result = succeeded("explain", PIPELINE, "--batch", "0", "--mermaid")
    lines = result.stdout.splitlines()
    assert (lines[0], lines[2], lines[-1]) == ("```mermaid", "flowchart TB", "```")
    assert any('["Stage flights+planes"]' in line for line in lines)
    within = coset("explain", PIPELINE, "--batch", "0", "--mermaid", "--json")
    assert json.loads(within.stdout)["mermaid"].splitlines() == lines
    result = coset("explain", PIPELINE, "--batch", "0", "--svg", str(tmp_path / "missing" / "plan.svg"))
    assert result.exit_code == 3
    assert "the picture cannot be written" in result.stderr
