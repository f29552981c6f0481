"""A topic whose keys get a new schema id, so that they lie elsewhere: equal keys meet, and what was kept goes on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.publication import abandon
from coset.batches.runners.local import Local
from coset.batches.tables.first_rows import first_rows
from coset.batches.verifying import verify
from coset.testing.queries import check
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.hashes import hash_of
from partitioning.model.placement import each_of
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateInput
from partitioning.model.streams import NullKeys
from spark_jobs.engine.take import LEFT, TAKEN
from tests.batches import rows as table_rows
from tests.examples import examples
from tests.judged import COVERED, HASH, IN_PLACE, MEET
from tests.landed import land_file
from tests.running import moved, next_batch, run_and_publish
from tests.wrong_tasks import Wrong, first, refused, spoil_takes_of, ways

IDS = (7, 8, 900)
# Returns have keys of another subject.
OWN = 500


def schema(id: int) -> str:
    """A schema of the registry: only its doc is another's."""
    return f'{{"type": "record", "name": "Key", "doc": "{id}", "fields": [{{"name": "id", "type": "long"}}]}}'


class Topics:
    """A topic of orders and one of returns, whose producers put each record where its key lies under a schema's id."""

    def __init__(self, root: str, *, apart: bool = False) -> None:
        self.root = root
        self.partitions = {"orders": 6, "returns": 4}
        self.ends = Counter[tuple[str, int]]()
        self._apart = apart

    def send(self, id: int, rows: Sequence[tuple[int, int]], topic: str = "orders") -> None:
        (stream,) = (each for each in self.pipeline(id).streams if each.name == topic)
        h, count = hash_of(stream.hash, "here"), self.partitions[topic]
        for partition in range(count):
            mine = [row for row in rows if h(f"[{row[0]}]", "string") % count == partition]
            if mine:
                table = pa.table({"id": pa.array([id for id, _ in mine], pa.int64()), "n": [n for _, n in mine]})
                land_file(table, topic, f"{self.root}/topics", partition, self.ends[topic, partition])
                self.ends[topic, partition] += len(mine)

    def pipeline(self, *ids: int) -> Pipeline:
        pipeline = Pipeline("ordered", source=f"{self.root}/topics")
        keys: dict[str, Any] = {"key": ("id",), "key_format": "avro"}
        orders, returns = (
            pipeline.stream(name, partitions=count, key_schemas={id: schema(id) for id in its}, **keys)
            for (name, count), its in zip(self.partitions.items(), (ids, (OWN,) if self._apart else ids), strict=True)
        )
        both = orders.select("n, 1::BIGINT AS c", name="sold").merge(
            returns.select("-n AS n, 0::BIGINT AS c", name="back")
        )
        both.combine("sum(n)::BIGINT AS n, sum(c)::BIGINT AS c", running=True, name="counted").write(
            "counted", mode="upsert"
        )
        orders.latest("n", name="newest").write("newest", mode="upsert")
        orders.filter("n % 2 = 0").write("even")
        return pipeline

    def batch(self, *ids: int, scheme: str = "cogroup") -> Plan:
        pipeline = self.pipeline(*ids)
        ref = next_batch(pipeline, self.root, Settings.parse(scheme=scheme))
        run_and_publish(ref)
        assert check(pipeline, self.root) == {}
        return ref.load()[1]


def rows(first: int, count: int) -> list[tuple[int, int]]:
    return [(number % 37, number) for number in range(first, first + count)]


def kept(plan: Plan) -> set[str]:
    """By what the state lies that a batch reads."""
    return {read.placement.hash for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)}


OF_7, OF_8 = "murmur2 of avro 7(id long)", "murmur2 of avro 8(id long)"


def test_keys_under_a_new_id_meet_those_before_and_all_goes_on_where_they_lie(store: Store) -> None:
    topics = Topics(store.root)
    topics.send(7, rows(0, 100))
    topics.send(7, rows(0, 10), "returns")
    assert topics.batch(7).exchanges == ()

    # The producers are deployed anew one by one.
    topics.send(7, rows(100, 60))
    topics.send(8, rows(140, 80))
    topics.send(7, rows(220, 10))
    topics.send(8, rows(30, 20), "returns")
    both = topics.batch(7, 8)
    assert sorted(exchange.source for exchange in both.exchanges) == ["orders", "returns"]
    assert kept(both) == {f"{OF_7} or {OF_8}"}

    # What is kept lies by the new one; while records by the old one come, they move.
    topics.send(8, rows(300, 50))
    topics.send(7, rows(350, 5))
    again = topics.batch(7, 8)
    assert (bool(again.exchanges), kept(again)) == (True, {OF_8})
    topics.send(8, rows(400, 70))
    last = topics.batch(8)
    assert (last.exchanges, kept(last)) == ((), {OF_8})
    # The records of all batches lie by either, which only their plans say now.
    assert [
        each.found if isinstance(each.found, str) else each.found.same for each in verify(topics.pipeline(8), store)
    ] == [True, True, True]

    # And back, as after a deployment that was undone.
    topics.send(8, rows(500, 20))
    topics.send(7, rows(520, 30))
    assert kept(topics.batch(8, 7)) == {f"{OF_8} or {OF_7}"}
    topics.send(7, rows(600, 30))
    back = topics.batch(7)
    assert (back.exchanges, kept(back)) == ((), {OF_7})


def test_of_records_by_two_ids_those_move_that_lie_elsewhere_than_by_the_newest(store: Store) -> None:
    topics = Topics(store.root)
    topics.send(7, rows(0, 10))
    topics.send(7, rows(0, 10), "returns")
    topics.batch(7)
    topics.send(8, rows(10, 1000))
    topics.send(7, rows(1010, 40))
    topics.send(8, rows(10, 30), "returns")
    old, new = (hash_of(name, "here") for name in (OF_7, OF_8))
    elsewhere = sum(old(f"[{id}]", "string") % 6 != new(f"[{id}]", "string") % 6 for id, _ in rows(1010, 40))
    plan = topics.batch(7, 8)
    assert plan.exchanges
    assert moved(store, plan) == elsewhere
    assert 20 < elsewhere <= 40


@ways
def test_records_by_two_ids_that_are_not_taken_or_moved_once_are_refused(some: str, store: Store) -> None:
    topics = Topics(store.root)
    topics.send(7, rows(0, 20), "returns")
    topics.send(7, rows(0, 60))
    topics.send(8, rows(60, 60))
    ref = next_batch(topics.pipeline(7, 8), store.root, Settings.parse(scheme="tasks(6)"))

    def of(stage: str, found: int, said: int) -> Wrong:
        return lambda patch: spoil_takes_of(
            patch, lambda order, ordered: (order.stage, ordered.name) == (stage, "orders"), first(found, said)
        )

    (taking,) = (stage.name for stage in ref.load()[1].stages if stage.steps and "orders" in stage.name)
    refused(ref, some, {
        "one that stays is lost": ({COVERED}, of(taking, TAKEN, LEFT)),
        "one that moves is lost": ({COVERED}, of("orders.changed", TAKEN, LEFT)),
        "one that stays moves too": ({COVERED}, of("orders.changed", LEFT, TAKEN)),
        "one that moves is taken where it lies": ({COVERED, IN_PLACE, MEET, HASH}, of(taking, LEFT, TAKEN)),
    })  # fmt: skip
    run_and_publish(ref)
    assert check(topics.pipeline(7, 8), store.root) == {}


@pytest.mark.parametrize(("null_keys", "without"), [(NullKeys.OWN_TASK, 3), (NullKeys.DROP, 0)])
def test_records_without_a_key_and_those_set_aside_stay_where_they_lie(
    null_keys: NullKeys, without: int, store: Store
) -> None:
    pipeline = Pipeline("seen", source=f"{store.root}/topics")
    keys: dict[str, Any] = {"key": "id", "key_format": "avro", "key_schemas": {7: '"long"', 8: '"long"'}}
    more: dict[str, Any] = {
        "format": "json",
        "offset": None,
        "columns": {"id": "BIGINT", "n": "BIGINT"},
        "bad_records": "set aside up to 5",
    }
    views = pipeline.stream("views", partitions=3, null_keys=null_keys, **keys, **more)
    views.select("n", name="numbers").aggregate("count(*) AS c, sum(n) AS n").write("seen")
    hashes = [hash_of(name, "here") for name in each_of(pipeline.streams[0].hash)]
    right = dict[int | None, list[int]]()
    for partition in range(3):
        lines = [f'{{"n": {partition}}}', f'{{"id": {partition}, "n": "no number"}}']
        if without:
            right[None] = [without, sum(range(3))]
        for n in range(60):
            if hashes[n % 2](n % 20, "long") % 3 == partition:
                lines.append(f'{{"id": {n % 20}, "n": {n}}}')
                of_key = right.setdefault(n % 20, [0, 0])
                of_key[0], of_key[1] = of_key[0] + 1, of_key[1] + n
        store.put(f"topics/views/partition={partition}/views+{partition}+0000000000.json", "\n".join(lines).encode())
    ref = next_batch(pipeline, store.root)
    run_and_publish(ref)
    assert {row[0]: [*row[1:]] for row in table_rows(store.root, "seen")} == right


def test_a_record_that_moves_is_set_aside_once_when_a_step_of_another_stage_fails_on_it(store: Store) -> None:
    pipeline = Pipeline("seen", source=f"{store.root}/topics")
    keys: dict[str, Any] = {"key": "id", "key_format": "avro", "key_schemas": {7: '"long"', 8: '"long"'}}
    views = pipeline.stream("views", partitions=3, bad_records="set aside up to 5", **keys)
    checked = views.select("CASE WHEN n = 7 THEN error('seven') ELSE n END AS n, id + 1 AS other", name="checked")
    moved_on = checked.rekey("other", key_format="long", name="by_other").aggregate(
        "sum(n)::BIGINT AS other_n", name="others"
    )
    views.select("n", name="plain").aggregate("sum(n)::BIGINT AS n", name="own").join(
        moved_on, "n, other_n", name="both"
    ).write("seen")
    old, new = (hash_of(name, "here") for name in each_of(pipeline.streams[0].hash))
    moves = [id for id in range(50) if old(id, "long") % 3 != new(id, "long") % 3]
    ids = [*moves[:8], *range(30)]
    lies = [old(id, "long") % 3 if n < 8 else new(id, "long") % 3 for n, id in enumerate(ids)]
    for partition in range(3):
        mine = [n for n, place in enumerate(lies) if place == partition]
        table = pa.table({"id": pa.array([ids[n] for n in mine], pa.int64()), "n": pa.array(mine, pa.int64())})
        land_file(table, "views", f"{store.root}/topics", partition, 0)
    ref = next_batch(pipeline, store.root)
    assert [stage.wave for stage in ref.load()[1].stages if stage.streams] == [0, 1, 3]
    with pytest.raises(CosetError, match="set aside by all stages that read it"):
        run_and_publish(ref)
    run_and_publish(ref)
    own, others = Counter[int](), Counter[int]()
    for n, id in enumerate(ids):
        own[id] += n * (n != 7)
        others[id + 1] += n * (n != 7)
    assert {row[:3] for row in table_rows(store.root, "seen")} == {(id, own[id], others[id]) for id in own & others}


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(9)"])
def test_the_partition_count_may_change_with_the_id(scheme: str, store: Store) -> None:
    topics = Topics(store.root, apart=True)
    topics.send(7, rows(0, 80))
    topics.send(7, rows(0, 10), "returns")
    topics.batch(7)
    topics.send(7, rows(80, 40))
    topics.partitions["orders"] = 9
    topics.send(7, rows(120, 40))
    topics.send(8, rows(160, 80))
    assert kept(topics.batch(7, 8, scheme=scheme)) == {f"{OF_7} or {OF_8}"}
    topics.send(8, rows(240, 40))
    topics.send(8, rows(10, 10), "returns")
    # Returns have another id, and move to the orders.
    assert [exchange.source for exchange in topics.batch(8, scheme=scheme).exchanges] == ["back"]


def test_who_does_not_know_of_a_new_id_is_told_which_it_is_and_goes_on_by_what_is_said(store: Store) -> None:
    topics = Topics(store.root)
    topics.send(7, rows(0, 100))
    topics.send(7, rows(0, 10), "returns")
    topics.batch(7)
    topics.send(8, rows(100, 80))
    topics.send(7, rows(180, 20))
    ref = next_batch(topics.pipeline(7), store.root)
    with pytest.raises(CosetError) as refused:
        run_and_publish(ref)
    assert "the keys of orders that lie elsewhere lie under schema 8: " in str(refused.value)
    assert "add 8 to key_schemas=, the newest last" in str(refused.value)

    pipeline = topics.pipeline(7, 8)
    abandon(Ledger(store, pipeline.name), "a new schema")
    run_and_publish(next_batch(pipeline, store.root))
    assert check(pipeline, store.root) == {}


def test_records_of_an_id_that_was_left_out_too_early_are_counted_once_and_told_by_it_whoever_reads_them(
    store: Store,
) -> None:
    said = dict[str, list[str]]()
    for scheme in ("cogroup", "tasks(9)"):
        topics = Topics(f"{store.root}/{scheme}")
        topics.send(7, rows(0, 40), "returns")
        topics.send(8, rows(0, 60))
        topics.send(7, rows(60, 40))
        ref = next_batch(topics.pipeline(8), topics.root, Settings.parse(scheme=scheme))
        with pytest.raises(CosetError) as refused:
            run_and_publish(ref)
        counted = re.findall(r"- (\w+-\d)@.*: (\d+ records?) with a key that hashes", str(refused.value))
        said[scheme] = [f"{partition}: {records}" for partition, records in counted]
        assert "the keys of orders that lie elsewhere lie under schema 7: " in str(refused.value)
        assert "add 7 to key_schemas=, the newest last" in str(refused.value)
    assert said["cogroup"] == said["tasks(9)"] != []


def test_a_record_that_lies_by_none_of_the_ids_is_refused_with_where_it_would(store: Store) -> None:
    topics = Topics(store.root)
    topics.send(7, rows(0, 30))
    topics.send(8, rows(30, 30))
    topics.send(8, rows(0, 10), "returns")
    table = pa.table({"id": pa.array([3], pa.int64()), "n": [1]})
    lies = {hash_of(name, "here")("[3]", "string") % 6 for name in (OF_7, OF_8)}
    wrong = next(partition for partition in range(6) if partition not in lies)
    end = topics.ends["orders", wrong]
    land_file(table, "orders", f"{store.root}/topics", wrong, end)
    with pytest.raises(CosetError) as refused:
        run_and_publish(next_batch(topics.pipeline(7, 8), store.root))
    homes = " or ".join(str(hash_of(name, "here")("[3]", "string") % 6) for name in (OF_8, OF_7))
    said = f"key '[3]', orders-{wrong} at offset {end}, belongs in partition {homes} of 6"
    assert said in str(refused.value)


def test_batches_are_run_again_by_the_ids_that_their_records_had(store: Store, tmp_path: Path) -> None:
    topics = Topics(store.root)
    for number, ids in enumerate(((7,), (7, 8), (8,))):
        for id in ids:
            topics.send(id, rows(100 * number, 40))
            topics.send(id, rows(100 * number, 5), "returns")
        topics.batch(*ids)
    # What is declared now is how the last of them lie.
    asked = Asked(0, 2, Settings.parse(scheme="tasks(4)"))
    backfill = actions.begin(topics.pipeline(8), store, asked)
    with Local(processes=1) as runner:
        actions.run(topics.pipeline(8), store, backfill, runner, tmp_path, silently)
    assert actions.comparison(store, backfill).same


BATCHES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True),
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.booleans()), max_size=25),
        st.sampled_from(["cogroup", "tasks(1)", "tasks(3)", "tasks(4)", "elastic(2)"]),
        st.booleans(),
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches=BATCHES, apart=st.booleans())
def test_whatever_ids_come_and_go_each_key_has_what_all_its_records_give(
    batches: list[tuple[list[int], list[tuple[int, int, bool]], str, bool]],
    apart: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topics = Topics(f"file://{tmp_path_factory.mktemp('ids')}", apart=apart)
    n, right = 0, dict[int, list[int]]()
    for ids, records, scheme, grows in batches:
        topics.partitions["orders"] += 2 * (grows and n > 0)
        for which, key, returned in [(0, 0, False), (0, 0, True), *records]:
            n += 1
            topics.send(ids[which % len(ids)], [(key, n)], "returns" if returned else "orders")
            of_key = right.setdefault(key, [0, 0])
            of_key[0] += -n if returned else n
            of_key[1] += not returned
        topics.batch(*ids, scheme=scheme)
    found = first_rows(store_at(topics.root), "counted", 1000)
    assert found is not None
    assert {row["id"]: [row["n"], row["c"]] for row in found.rows.to_pylist()} == right
