"""Records that cannot be used are set aside: counted, kept beside the results, and told of; also in random batches."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.pace import warned
from coset.batches.ref import BatchRef
from coset.batches.result_rows import set_aside_in
from coset.batches.tables.first_rows import first_rows
from coset.testing import run
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import canonical, digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.private import MASK
from partitioning.model.receipt import Role
from partitioning.model.schemes import Scheme
from tests.backfilled import run_again
from tests.commands import coset, succeeded
from tests.examples import examples
from tests.kafka import new_topic, produce
from tests.landed import land_file
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups
from tests.there import there
from tests.unusable import PARTITIONS, home, land, line, orders, totals


def planned(pipeline: Pipeline, store: Store) -> BatchRef:
    return next_batch(pipeline, store.root)


def ran(pipeline: Pipeline, store: Store, docs: Path) -> BatchRef:
    ref = planned(pipeline, store)
    run_and_publish(ref, docs)
    return ref


def rows(store: Store, table: str = "spent") -> list[Mapping[str, Any]]:
    found = there(first_rows(store, table, 1000))
    return sorted(found.rows.select(["customer", "orders", "spent"]).to_pylist(), key=str)


def set_aside(ref: BatchRef) -> list[dict[str, Any]]:
    """What the files say that the verdict names."""
    ledger, plan = ref.load()
    return [dict(record) for record in set_aside_in(ledger, plan)]


BAD: Sequence[bytes] = (b'{"customer": "ann", "amount":', b'{"customer": "ann", "amount": "much"}', b"\xff\xfe", b"[1]")


@pytest.mark.parametrize("bad", BAD)
def test_a_line_that_cannot_be_read_is_set_aside_and_the_others_count(store: Store, tmp_path: Path, bad: bytes) -> None:
    partition = home("ann")
    land(store, partition, 0, [line("ann", 1, 0), bad, line("ann", 2, 2)])
    ref = ran(totals(store), store, tmp_path)
    assert rows(store) == [{"customer": "ann", "orders": 2, "spent": 3.0}]
    (record,) = set_aside(ref)
    assert (record["stream"], record["partition"], record["offset"]) == ("orders", partition, 1)
    assert record["raw"] == bad
    assert "line 2" in record["why"]
    ledger, plan = ref.load()
    verdict = there(ledger.verdict(plan.batch))
    assert sum(file.role is Role.SET_ASIDE for file in verdict.artefacts) == 1
    assert "set aside" in steps.report(ref, tmp_path)


@pytest.mark.parametrize("bad", BAD)
def test_a_line_that_is_refused_is_set_aside_as_the_refusal_says(store: Store, tmp_path: Path, bad: bytes) -> None:
    land(store, home("ann"), 0, [line("ann", 1, 0), bad, line("ann", 2, 2)])
    finding = finding_of(planned, totals(store, bad_records="refuse"), store)
    assert finding.then.startswith("land the file again with that line corrected")
    declared = finding.then.partition("set such records aside: bad_records=")[2].strip('"')
    ref = ran(totals(store, bad_records=declared), store, tmp_path)
    assert [record["raw"] for record in set_aside(ref)] == [bad]


def test_a_limit_that_is_passed_stops_the_batch_and_shows_the_first(store: Store, tmp_path: Path) -> None:
    partition = home("ann")
    land(store, partition, 0, [b"x", line("ann", 1, 1), b"y"])
    finding = finding_of(ran, totals(store, bad_records="set aside up to 1"), store, tmp_path)
    assert "orders: 2 records of 3 set aside, beyond: set aside up to 1" in finding.what
    assert f"orders-{partition} at offset 0: line 1 is no JSON object" in finding.what
    cure, again = finding.then.index("declare it: bad_records="), finding.then.index("tries the same plan again")
    assert cure < again


def test_what_may_be_set_aside_is_the_greater_of_a_number_and_a_share(store: Store, tmp_path: Path) -> None:
    land(store, home("ann"), 0, [b"x", line("ann", 1, 1), b"y"])
    ref = ran(totals(store, bad_records="set aside up to 1 or 70 %"), store, tmp_path)
    assert [record["offset"] for record in set_aside(ref)] == [0, 2]


def test_records_set_aside_are_told_as_a_warning(store: Store, tmp_path: Path) -> None:
    land(store, home("ann"), 0, [b"x", line("ann", 1, 1)])
    ref = ran(totals(store), store, tmp_path)
    ledger, plan = ref.load()
    (found,) = warned(ledger, plan.batch, 0)
    assert "No record is set aside." in found.what
    assert "1 record set aside" in found.what


def test_a_line_of_a_sparse_stream_that_does_not_say_its_offset_cannot_be_set_aside(store: Store) -> None:
    land(store, home("ann"), 0, [line("ann", 1, 0), b"x", line("ann", 1, 7)])
    with pytest.raises(Refused, match="nor does it say its offset"):
        planned(totals(store, offsets="sparse(10)"), store)


def test_private_values_are_not_kept(store: Store, tmp_path: Path) -> None:
    bad = b'{"customer": "secret", "amount": "hush", "_offset": 1}'
    land(store, home("ann"), 0, [line("ann", 1, 0), bad])
    ref = ran(totals(store, private=["customer"]), store, tmp_path)
    (record,) = set_aside(ref)
    assert record["raw"] == MASK.encode()
    ledger, _ = ref.load()
    told = b"".join(ledger.store.get(entry.key) or b"" for entry in ledger.store.list("spent/"))
    assert b"hush" not in told
    assert b"secret" not in told


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)", "tasks(7)", "elastic(2)", "max"])
def test_each_is_set_aside_by_one_task_under_any_scheme(store: Store, scheme: str) -> None:
    for partition in range(PARTITIONS):
        names = [f"c{n}" for n in range(60) if home(f"c{n}") == partition]
        lines = [line(name, 1, offset) for offset, name in enumerate(names)]
        for bad in range(partition, len(lines), 5):
            lines[bad] = b"x"
        land(store, partition, 0, lines)
    flow = orders(store)
    given = flow.filter("amount > 0") if scheme == "max" else flow.aggregate("count(*) AS orders, sum(amount) AS spent")
    given.write("spent")
    ref = planned_under(flow.pipeline, store, scheme)
    run_and_publish(ref)
    _, plan = ref.load()
    places = [(record["partition"], record["offset"]) for record in set_aside(ref)]
    expected = [
        (planned.partition, offset)
        for planned in plan.stream("orders").partitions
        for offset in range(planned.partition, planned.end, 5)
    ]
    assert places == expected


def planned_under(pipeline: Pipeline, store: Store, scheme: str) -> BatchRef:
    return next_batch(pipeline, store.root, Settings(scheme=Scheme.parse(scheme)))


def test_a_value_of_a_parquet_file_that_cannot_be_cast_is_set_aside(store: Store, tmp_path: Path) -> None:
    pipeline = Pipeline("spent", source=f"{store.root}/topics")
    flow = pipeline.stream(
        "orders", key="customer", partitions=1, cast={"amount": "DOUBLE"}, bad_records="set aside", hash="opaque"
    )
    flow.aggregate("count(*) AS orders, sum(amount) AS spent").write("spent")
    table = pa.table({"customer": ["ann", "bob", "ann"], "amount": ["1.5", "much", "2"], "note": ["a", "b", "c"]})
    land_file(table, "orders", f"{store.root}/topics", 0, 0)
    ref = ran(pipeline, store, tmp_path)
    assert rows(store) == [{"customer": "ann", "orders": 2, "spent": 3.5}]
    (record,) = set_aside(ref)
    assert json.loads(record["raw"]) == {"customer": "bob", "amount": "much", "note": "b", "_offset": 1}
    assert record["why"].startswith("column 'amount' cannot be read as DOUBLE: ")


def test_a_key_that_is_no_text_is_set_aside(store: Store, tmp_path: Path) -> None:
    pipeline = Pipeline("spent", source=f"{store.root}/topics")
    flow = pipeline.stream("orders", key="customer", partitions=1, bad_records="set aside")
    flow.aggregate("count(*) AS orders, sum(amount) AS spent").write("spent")
    keys = pa.array([b"ann", b"\xff", b"ann"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, keys.buffers())
    land_file(pa.table({"customer": text, "amount": [1.0, 2.0, 3.0]}), "orders", f"{store.root}/topics", 0, 0)
    ref = ran(pipeline, store, tmp_path)
    assert rows(store) == [{"customer": "ann", "orders": 2, "spent": 4.0}]
    (record,) = set_aside(ref)
    assert (record["offset"], record["why"]) == (1, "column 'customer' is not UTF-8")


def test_a_value_or_key_of_a_topic_that_cannot_be_read_is_set_aside(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    values = [(b"ann", b'{"amount": 1}'), (b"ann", b"x"), (b"\xff", b'{"amount": 2}'), (b"ann", b'{"amount": 4}')]
    values.append((b"ann", b'{"amount": 8, "note": "\xff"}'))
    produce(kafka, topic, values, partition=0)
    pipeline = Pipeline("spent", source=kafka.source)
    rule: Any = {"format": "json", "columns": {"amount": "DOUBLE", "note": "VARCHAR"}, "bad_records": "set aside"}
    flow = pipeline.stream(topic, key="customer", partitions=1, **rule)
    flow.aggregate("count(*) AS orders, sum(amount) AS spent").write("spent")
    ref = ran(pipeline, store, tmp_path)
    assert rows(store) == [{"customer": "ann", "orders": 2, "spent": 5.0}]
    found = [(record["offset"], record["raw"]) for record in set_aside(ref)]
    assert found == [(1, b"x"), (2, b'{"amount": 2}'), (4, values[4][1])]
    # Where a record lies in its broker nobody can correct it.
    with pytest.raises(Refused, match=f"topic '?{topic}'? is read from its broker") as refused:
        actions.begin(pipeline, store, Asked(0, 0, DEFAULTS, "corrected", True))
    assert "produce" in refused.value.findings[0].then
    # What that advises: both are produced once more, and the next batch takes each once.
    produce(kafka, topic, [(b"ann", b'{"amount": 8}'), (b"bob", b'{"amount": 2}')], partition=0)
    later = ran(pipeline, store, tmp_path)
    assert rows(store) == [
        {"customer": "ann", "orders": 1, "spent": 8.0},
        {"customer": "ann", "orders": 2, "spent": 5.0},
        {"customer": "bob", "orders": 1, "spent": 2.0},
    ]
    assert set_aside(later) == []


def cast_in(step: str, store: Store) -> Pipeline:
    """Amounts are text that a step makes numbers of."""
    flow = orders(store, columns={"customer": "VARCHAR", "amount": "VARCHAR"})
    if step == "filter":
        flow.filter("amount::DOUBLE > 0").aggregate("count(*) AS orders, sum(amount::DOUBLE) AS spent").write("spent")
    elif step == "aggregate":
        flow.aggregate("count(*) AS orders, sum(amount::DOUBLE) AS spent", name="totals").write("spent")
    else:
        columns = {"customer": "VARCHAR", "amount": "DOUBLE"}
        made = flow.process("tests.functions:as_numbers", columns, name="numbers")
        made.aggregate("count(*) AS orders, sum(amount) AS spent").write("spent")
    return flow.pipeline


@pytest.mark.parametrize("step", ["filter", "aggregate", "process"])
def test_records_on_which_a_step_fails_are_set_aside(store: Store, tmp_path: Path, step: str) -> None:
    partition = home("ann")
    amounts = ["1", "much", "2", "more", "4"]
    land(store, partition, 0, [line("ann", amount, offset) for offset, amount in enumerate(amounts)])
    land(store, (partition + 1) % PARTITIONS, 0, [b"x"])
    ref = ran(cast_in(step, store), store, tmp_path)
    assert rows(store) == [{"customer": "ann", "orders": 3, "spent": 7.0}]
    found = [record for record in set_aside(ref) if record["step"]]
    assert [(record["partition"], record["offset"]) for record in found] == [(partition, 1), (partition, 3)]
    assert json.loads(found[0]["raw"])["amount"] == "much"
    assert found[0]["step"] == {"filter": "orders.filter", "aggregate": "totals", "process": "numbers"}[step]
    assert "much" in found[0]["why"]


def test_a_step_that_fails_on_all_records_together_stops_the_batch(store: Store, tmp_path: Path) -> None:
    flow = orders(store, columns={"customer": "VARCHAR", "amount": "TINYINT"})
    flow.aggregate("count(*) AS orders, sum(amount)::TINYINT AS spent").write("spent")
    land(store, home("ann"), 0, [line("ann", 100, offset) for offset in range(4)])
    with pytest.raises(Refused, match="SQL failed"):
        ran(flow.pipeline, store, tmp_path)


@pytest.mark.long
def test_a_step_that_fails_on_very_many_records_stops_the_batch(store: Store, tmp_path: Path) -> None:
    land(store, home("ann"), 0, [line("ann", "much", offset) for offset in range(120)])
    with pytest.raises(Refused, match="so it is on more than 100 records, of which this is one"):
        ran(cast_in("aggregate", store), store, tmp_path)


@pytest.mark.long
def test_a_record_that_one_of_two_stages_cannot_use_is_set_aside_by_both_in_the_next_attempt(store: Store) -> None:
    flow = orders(store, columns={"customer": "VARCHAR", "amount": "VARCHAR"})
    flow.aggregate("count(*) AS orders, count(amount)::DOUBLE AS spent", name="totals").write("spent")
    moved = flow.rekey("said", sql="amount", name="by").aggregate("count(*) AS n", name="amounts")
    back = moved.rekey("customer", sql="'ann'", name="back").aggregate("sum(n)::BIGINT AS n", name="all")
    flow.join(back, 'orders.amount::DOUBLE AS amount, "all".n', name="joined").write("joined")
    land(store, home("ann"), 0, [line("ann", amount, offset) for offset, amount in enumerate(["1", "much", "2"])])
    ref = planned(flow.pipeline, store)
    with pytest.raises(Refused, match="sets 1 record aside, another stage others"):
        run_and_publish(ref)
    run_and_publish(ref)
    assert rows(store) == [{"customer": "ann", "orders": 2, "spent": 2.0}]
    joined = there(first_rows(store, "joined", 10))
    assert sorted(joined.rows.select(["amount", "n"]).to_pylist(), key=str) == [
        {"amount": 1.0, "n": 2},
        {"amount": 2.0, "n": 2},
    ]
    assert [(record["offset"], record["step"]) for record in set_aside(ref)] == [(1, "joined")]


def test_a_file_that_is_landed_again_with_the_record_corrected_gives_it_to_the_results_once(
    store: Store, tmp_path: Path
) -> None:
    partition, made = home("ann"), totals(store)
    land(store, partition, 0, [line("ann", 1, 0), b"x", line("ann", 2, 2)])
    ref = ran(made, store, tmp_path)
    land(store, partition, 0, [line("ann", 1, 0), line("ann", 5, 1), line("ann", 2, 2)])
    request = run_again(made, store, Asked(0, 0, DEFAULTS, "corrected", True), tmp_path)
    actions.swap(store, request, digest(actions.comparison(store, request, tmp_path)), "")
    assert rows(store) == [{"customer": "ann", "orders": 3, "spent": 8.0}]
    ledger, plan = ref.load()
    assert [record["offset"] for record in set_aside_in(ledger, plan)] == [1]
    again = Ledger(store, request.name)
    plan_again = there(again.plan(0))
    assert list(set_aside_in(again, plan_again)) == []


def test_the_command_line_shows_what_was_set_aside(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spent.py"
    file.write_text(
        "from pathlib import Path\nfrom tests.unusable import totals\n"
        "from partitioning.documents.stores import store_at\n"
        f"pipeline = totals(store_at({store.root!r}))\n"
    )
    monkeypatch.setenv("COSET_STORE", store.root)
    land(store, home("ann"), 0, [line("ann", 1, 0), b"x\xff", line("ann", 2, 2)])
    ran(totals(store), store, tmp_path)
    answer = succeeded("records", str(file), "--batch", "0", "--set-aside", "--json")
    said = json.loads(answer.stdout)
    assert (said["set_aside"], said["records"][0]["offset"], said["records"][0]["raw"]) == (1, 1, "x\\xff")
    shown = coset("records", str(file), "--set-aside")
    assert "Batch 0 of spent set 1 record aside" in shown.stdout
    assert coset("records", str(file), "--batch", "0", "--set-aside", "--offenders").exit_code != 0
    offenders = coset("records", str(file), "--offenders").stdout
    assert "Records that were set aside are shown, with why, by --set-aside instead of --offenders" in offenders
    assert "not about single records" not in offenders
    status = coset("status", str(file)).stdout
    assert f"Batch 0 set 1 record aside: coset records {file} --batch 0 --set-aside" in status
    assert json.loads(coset("status", str(file), "--json").stdout)["set_aside"] == 1
    land(store, home("ann"), 3, [line("ann", 1, 3)])
    ran(totals(store), store, tmp_path)
    assert json.loads(coset("status", str(file), "--json").stdout)["set_aside"] == 0
    assert "aside" not in coset("status", str(file)).stdout


@pytest.mark.parametrize("step", ["select", "aggregate"])
def test_what_fails_where_records_have_moved_to_stops_the_batch_and_before_that_it_is_set_aside(step: str) -> None:
    pipeline = Pipeline("moved", source="s3://landing/topics")
    flow = pipeline.stream("orders", key="id", partitions=2, bad_records="set aside").rekey("customer", name="moved")
    # Records move as late as they can, so a select behind rekey still has those of the stream.
    flow = flow.select("amount::BIGINT AS amount", name="cast") if step == "select" else flow
    flow.aggregate("sum(amount::BIGINT)::BIGINT AS spent", name="totals").write("totals")
    landed = [{"id": str(n), "customer": "ann", "amount": amount} for n, amount in enumerate(("1", "much", "2"))]
    if step == "aggregate":
        with pytest.raises(Refused, match="much"):
            run(pipeline, {"orders": landed})
        return
    done = run(pipeline, {"orders": landed})
    assert [(row["customer"], row["spent"]) for row in done["totals"]] == [("ann", 3)]
    assert "1 record set aside" in done.warnings[0][0]


NAMES = [f"c{number}" for number in range(12)]
# By partition: the lines that landed, and what each is: a customer's amount, or that it cannot be used.
Line = tuple[bytes, tuple[str, int] | None]


def lines_of(chance: random.Random, partition: int, first: int) -> list[Line]:
    """So many lines of a partition as come about: most can be used, some are no JSON, some have an amount that is no
    number."""
    names, lines = [name for name in NAMES if home(name) == partition], list[Line]()
    for offset in range(first, first + chance.randint(0, 9)):
        name, amount, fate = chance.choice(names), chance.randrange(100), chance.random()
        if fate < 0.1:
            lines.append((b'{"customer": "' + name.encode(), None))
        elif fate < 0.2:
            lines.append((line(name, "much", offset), None))
        else:
            lines.append((line(name, str(amount), offset), (name, amount)))
    return lines


def spent(store: Store, limit: int) -> Pipeline:
    """What customers spent in each batch: the amounts become numbers in an aggregate."""
    columns = {"customer": "VARCHAR", "amount": "VARCHAR"}
    flow = orders(store, columns=columns, bad_records=f"set aside up to {limit}")
    flow.aggregate("count(*) AS orders, sum(amount::BIGINT)::BIGINT AS spent", name="totals").write("spent")
    return flow.pipeline


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_each_record_is_in_the_results_or_set_aside_once(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("aside")
    store, ends = store_at(str(folder / "store")), [0] * PARTITIONS
    expected: dict[str, list[int]] = defaultdict(list)
    for _ in range(chance.randint(1, 3)):
        landed = {partition: lines_of(chance, partition, ends[partition]) for partition in range(PARTITIONS)}
        for partition, lines in landed.items():
            if lines:
                land(store, partition, ends[partition], [text for text, _ in lines])
        places = [
            (partition, ends[partition] + number, known)
            for partition, lines in landed.items()
            for number, (_, known) in enumerate(lines)
        ]
        ends = [end + len(landed[partition]) for partition, end in enumerate(ends)]
        bad = [(partition, offset) for partition, offset, known in places if known is None]
        limit = chance.choice((len(bad), 50, max(len(bad) - 1, 0)))
        asked = Settings(scheme=Scheme.parse(f"tasks({chance.randint(1, 7)})"), groups=chance.randint(1, 3))
        if not any(ends):
            continue
        ref, _ = steps.plan(spent(store, limit), store.root, asked)
        if ref is None:
            continue
        ledger, plan = ref.load()
        if chance.random() < 0.4:
            # Killed between its tasks and its check: another attempt is made.
            run_groups(ref)
            ledger.close_attempt(plan.batch, 0, canonical({"findings": []}))
        if len(bad) > limit:
            with pytest.raises(Refused, match="beyond: set aside up to"):
                run_and_publish(ref, folder)
            return
        run_and_publish(ref, folder)
        for name, amount in (known for _, _, known in places if known is not None):
            expected[name].append(amount)
        found = list(set_aside_in(ledger, plan))
        assert [(record["partition"], record["offset"]) for record in found] == bad
        assert added_up(store) == {name: (len(amounts), sum(amounts)) for name, amounts in expected.items()}


def added_up(store: Store) -> dict[str, tuple[int, int]]:
    """The orders and the sum of each customer over all batches."""
    found = first_rows(store, "spent", 10_000)
    totals: dict[str, tuple[int, int]] = {}
    rows: list[dict[str, Any]] = found.rows.to_pylist() if found is not None else []
    for row in rows:
        count, amount = totals.get(row["customer"], (0, 0))
        totals[row["customer"]] = count + row["orders"], amount + row["spent"]
    return totals
