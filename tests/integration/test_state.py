"""State over batches: what each step keeps, what batches leave, copies where they ran, and objects that were lost."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import backfills
from coset.batches.backfills.swaps import cancelled
from coset.batches.interpreter import silently
from coset.batches.kept import kept_state, kept_states, rows_kept
from coset.batches.publication import abandon
from coset.batches.ref import BatchRef
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.sweeping import STATES_KEPT, left_over, sweep
from coset.sources.copies import FOLDER, MOST, Copies
from coset.testing import run
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Role
from partitioning.model.stage_inputs import StateInput
from partitioning.sections import markdown
from tests import functions
from tests.backfilled import Batches, counted, stored
from tests.begun import Begun
from tests.commands import coset, refused, succeeded
from tests.examples import examples, few
from tests.goldens import expect_golden
from tests.histories import STREAK, Click, History, Oracle, pipeline_of
from tests.refused import finding_of
from tests.running import run_groups, task_receipts
from tests.three_batches import NEWEST, three_batches
from tests.totals import totals

__all__ = ["three_batches"]


def state_of(store: Store, batch: int) -> list[Artefact]:
    """The objects of state that a batch left, and the next goes on from."""
    runs = [
        run for state in kept_states(Ledger(store, "kept")) for run in zip(state.read.runs, state.runs, strict=True)
    ]
    return [file for run, files in runs if run.batch == batch for file in files]


def restored(store: Store) -> list[str]:
    with Local(processes=1) as runner:
        return [file.path for file in restore("kept", store, runner, silently)]


def clicks(batch: int) -> list[Click]:
    return [Click(f"key-{key}", 10 * batch + key, batch + 1) for key in range(2 * batch, 9)]


TWO = Settings.parse(scheme="tasks(2)")


def batches(store: Store, count: int) -> tuple[History, Oracle, BatchRef]:
    """So many published batches of all kinds of state, and one more that is planned."""
    history, oracle = History(store, Path()), Oracle()
    for number in range(count):
        history.land(clicks(number), clicks(number)[:3], 4)
        wanted = oracle.batch(clicks(number), clicks(number)[:3])
        assert history.publish(history.plan(TWO, 4), judged=False) == wanted
    history.land(clicks(count), clicks(count)[:3], 4)
    return history, oracle, history.plan(TWO, 4)


def one_batch(store: Store) -> None:
    batches(store, 1)


@pytest.fixture
def one(begun: Begun) -> Store:
    """A published batch, and one more that is planned."""
    return begun.by(one_batch)


def test_are_made_anew_as_they_were(store: Store) -> None:
    history, oracle, ref = batches(store, 3)
    gone = sorted({batch: state_of(store, batch)[-1].path for batch in range(3) if state_of(store, batch)}.values())
    assert len(gone) > 1
    before = {path: store.get(path) for path in gone}
    for number, path in enumerate(gone):
        store.put(path, b"damaged") if number % 2 else store.delete(path)
    with pytest.raises(Refused) as told:
        run_groups(ref)
    assert {finding.kind for finding in told.value.findings} == {Kind.STATE_GONE}
    assert {finding.then for finding in told.value.findings} == {"`coset restore kept`"}
    assert sorted(restored(store)) == gone
    assert {path: store.get(path) for path in gone} == before
    # The batch that met it goes on, under the plan that it has.
    assert history.publish(ref, judged=False) == oracle.batch(clicks(3), clicks(3)[:3])
    assert restored(store) == []
    # What was run again is left over.
    sweep(pipeline_of(f"{store.root}/topics", 4), store)
    assert not [key for key in stored(store) if re.search(r"\.backfill-\d+/left/", key)]
    assert {one.number for one in backfills(store, "kept")} == cancelled(store, "kept").keys()


@pytest.mark.long
def test_are_made_anew_from_what_was_lost_as_well(store: Store, tmp_path: Path) -> None:
    """What the lost object was made from is gone too: it is made first."""
    history = Batches(store, tmp_path)
    for number in range(3):
        history.batch(number)
    gone = [key for key in stored(store) if "/left/" in key and "newest" in key]
    assert {key.split("/left/")[1].partition("/")[0] for key in gone} == {"0", "1", "2"}
    for key in gone:
        store.delete(key)
    assert restored(store)
    history.batch(3)
    newest = {f"key-{(n + key) % 13}": 10 * n + key for n in range(4) for key in range(9)}
    assert [row[:2] for row in history.seen("newest")] == sorted(newest.items())


def test_that_were_stopped_go_on(one: Store) -> None:
    store, gone = one, state_of(one, 0)[0]
    store.delete(gone.path)

    class Stopped(Local):
        def group(self, batch: BatchRef, number: int) -> str:
            super().group(batch, number)
            raise KeyboardInterrupt

    with Stopped(processes=1) as runner, pytest.raises(KeyboardInterrupt):
        restore("kept", store, runner, silently)
    assert restored(store) == [gone.path]
    assert [one.number for one in backfills(store, "kept")] == [0]


def newest(name: str) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        one.stream("clicks", key="k", partitions=partitions).latest("seen", name=name).write("newest", mode="upsert")
        return one

    return pipeline


def test_whose_input_is_gone_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history, again = (History(store, tmp_path, newest(name)) for name in ("newest", "another"))
    for number in range(2):
        history.land(clicks(number), [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    (lost, *_) = state_of(store, 0)
    store.delete(lost.path)
    landed = next(key for key in stored(store) if key.startswith("topics/clicks/"))
    store.delete(landed)
    before = stored(store)
    finding = finding_of(restored, store)
    assert (finding.kind, finding.where) == (Kind.STATE_GONE, f"{store.root}/{landed}")
    assert "restore the file as it was" in finding.then
    assert "rename newest and let it begin anew under the new name" in finding.then
    assert stored(store) == before
    # As it says.
    again.land(clicks(2), [], 4)
    again.publish(again.plan(Settings(begin_anew=("another",)), 4), judged=False)


def test_that_come_out_otherwise_are_told(one: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that gives another answer each time cannot make again what it kept."""
    store = one
    (gone, *_) = [file for file in state_of(store, 0) if "streak" in file.name]
    store.delete(gone.path)
    first = functions.streak

    def forgetful(clicks: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
        rows, keeps = first(clicks, kept)
        return rows, keeps.slice(1)

    monkeypatch.setattr(functions, "streak", forgetful)
    with pytest.raises(Refused, match="now writes other state than the lost one"):
        restored(store)
    assert store.head(gone.path) is None


def test_are_refused_wherever_they_are_read(three_batches: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(three_batches, "newest")
    for state in kept_states(ledger):
        for file in (file for files in state.runs for file in files):
            three_batches.delete(file.path)
    again = f"`coset restore {NEWEST} --store {three_batches.root}"
    refused(coset("state", NEWEST, "newest"), f"{again}`")
    words = ("backfill", NEWEST, "--from", "2", "--scheme", "tasks(2)", "--runner", "local")
    result = coset(*words)
    assert result.exit_code == 3, result.output
    assert f"{again} --runner local`" in result.stderr
    done = succeeded("restore", NEWEST, "--runner", "local")
    assert re.search(r"Made anew: \d+ objects? of state", done.stdout)
    succeeded("state", NEWEST, "newest")
    assert "There is nothing to make anew" in coset("restore", NEWEST, "--runner", "local").stdout
    succeeded(*words)


@pytest.mark.long
def test_are_no_reason_for_a_traceback_in_a_comparison(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, counted)
    for number in range(2):
        history.batch(number)
    backfill = history.backfilled(Asked(0, 1, Settings()))
    for state in kept_states(Ledger(store, "kept")):
        for file in (file for files in state.runs for file in files):
            store.delete(file.path)
    with pytest.raises(Refused, match="coset restore kept"):
        actions.comparison(store, backfill)


KEYS = (*"abcdefghijkl", None)
SCHEMES = ("cogroup", "elastic(2)", "elastic(3)", "tasks(1)", "tasks(3)", "tasks(5)", "tasks(12)")


def records(chance: random.Random, now: int, count: int) -> list[Click]:
    """Some around a minute, a few of them much too late, a few of them more than once."""
    made = [
        Click(chance.choice(KEYS), chance.randrange(6), max(0, now + late + chance.randrange(12)))
        for late in chance.choices((0, -15, -40), weights=(3, 1, 1), k=count)
    ]
    return made + chance.sample(made, k=min(3, count))


@pytest.mark.parametrize(("batches", "seed"), few([(3, 0), *((6, seed) for seed in range(1, 1 + examples(5)))]))
def test_any_history_gives_what_one_process_gives(batches: int, seed: int, store: Store, tmp_path: Path) -> None:
    chance, oracle = random.Random(seed), Oracle()
    history = History(store, tmp_path)
    partitions = 4
    for batch in range(batches):
        if chance.random() < 0.3:
            partitions = chance.choice([count for count in (4, 6, 8, 12) if count >= partitions])
        clicks = records(chance, 12 * batch, chance.randrange(1, 25))
        views = records(chance, 12 * batch, chance.randrange(1, 15))
        history.land(clicks, views, partitions)
        wanted = oracle.batch(clicks, views)
        ref = history.plan(_settings(chance), partitions)
        match chance.randrange(3):
            case 0:
                run_groups(ref)
            case 1:
                # What a batch has left that is given up is nobody's state.
                run_groups(ref)
                abandon(Ledger(history.store, "kept"), "another plan")
                ref = history.plan(_settings(chance), partitions)
        assert history.publish(ref, judged=batch == batches - 1) == wanted, f"batch {batch}"


def _settings(chance: random.Random) -> Settings:
    return Settings.parse(scheme=chance.choice(SCHEMES), groups=chance.randint(1, 3))


@pytest.mark.parametrize("cuts", [[4], [2, 2], [1, 1, 1, 1]])
def test_a_duplicate_may_be_as_far_away_as_is_said_and_not_a_microsecond_farther(cuts: list[int]) -> None:
    """Also where what it is a duplicate of is as old as anything that is still kept."""
    pipeline = Pipeline("once", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1)
    span = timedelta(microseconds=20)
    once = clicks.distinct("id", time="make_timestamp(t)", within=span, keep=span, name="once")
    once.select("id, t").write("once")
    records = [{"k": "a", "id": number, "t": time} for number, time in ((1, 0), (2, 20), (1, 20), (2, 41))]
    rest = iter(records)
    rows = run(pipeline, *({"clicks": [next(rest) for _ in range(cut)]} for cut in cuts))
    assert [(row["id"], row["t"]) for row in rows["once"]] == [(1, 0), (2, 20), (2, 41)]


def test_what_is_kept_for_a_time_is_kept_once_beside_a_larger_run() -> None:
    pipeline = Pipeline("met", source="s3://landing/topics")
    clicks, views = (pipeline.stream(name, key="k", partitions=1) for name in ("clicks", "views"))
    times, span = ("make_timestamp(clicks.t)", "make_timestamp(views.t)"), timedelta(days=1)
    clicks.join_within(views, "clicks.t, views.t AS v", times=times, within=span, name="met").write("met")
    many = [{"k": "a", "t": number} for number in range(10)]
    seen = [many, [{"k": "b", "t": 10}], [{"k": "c", "t": 11}], [{"k": "d", "t": 12}]]
    clicked = [[{"k": key, "t": 20}] for key in "xyza"]
    rows = run(pipeline, *({"clicks": c, "views": v} for c, v in zip(clicked, seen, strict=True)))
    assert Counter(row["v"] for row in rows["met"]) == Counter(range(10))


KEPT = str(Path(__file__).parents[1] / "pipelines" / "kept.py")
KEYS_LEFT = 600


class Totals(History):
    """Running totals, and what each batch left of them."""

    def __init__(self, store: Store, docs: Path) -> None:
        super().__init__(store, docs, totals)

    def batch(self, keys: range, scheme: str = "cogroup") -> tuple[Plan, int]:
        """A batch with a record of each of these keys: its plan, and the records of state that it left."""
        self.land([Click(f"key-{number}", number, 0) for number in keys], [], 4)
        ref = self.plan(Settings.parse(scheme=scheme), 4)
        self.publish(ref, judged=False)
        return ref.load()[1], sum(file.records for task in task_receipts(ref) for file in task.left(Role.STATE))

    def now(self) -> dict[object, int]:
        ledger = Ledger(self.store, "kept")
        with rows_kept(ledger, kept_state(ledger, "totals")) as rows:
            table = rows.read_all()
        return dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))


def summed(clicks: Flow, columns: str = "sum(n)::BIGINT AS n, max(last) AS last", last: str = "max(id)") -> Flow:
    return clicks.aggregate(f"count(*) AS n, {last} AS last").combine(columns, running=True, name="totals")


def read_by(plan: Plan) -> StateInput:
    (read,) = (read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput))
    return read


def test_a_batch_leaves_what_it_has_and_not_what_was_ever_kept(store: Store, tmp_path: Path) -> None:
    history = Totals(store, tmp_path)
    assert history.batch(range(KEYS_LEFT))[1] == KEYS_LEFT
    wanted = dict.fromkeys((f"key-{number}" for number in range(KEYS_LEFT)), 1)
    left = []
    for batch in range(7):
        few = range(20 * batch, 20 * batch + 20)
        plan, records = history.batch(few)
        left.append(records)
        for number in few:
            wanted[f"key-{number}"] += 1
        assert history.now() == wanted
    # Every other batch has two runs of that size before it, and now and then there are two larger ones.
    assert left == [20, 20, 60, 20, 20, 60, 140]
    assert [run.records for run in read_by(plan).runs] == [60, 60, KEYS_LEFT]
    assert [run.merged for run in read_by(plan).runs] == [True, True, False]
    said = "totals.state: what totals kept up to batch 6, in 3 runs, placed by murmur2(k) mod 4."
    assert said in markdown(explain(plan))


def test_it_is_left_anew_once_too_many_tasks_read_each_part_of_it(store: Store, tmp_path: Path) -> None:
    history = Totals(store, tmp_path)
    history.batch(range(40), "tasks(2)")
    plan, left = history.batch(range(5), "tasks(6)")
    assert (read_by(plan).placement.partitions, left) == (2, 5)
    plan, left = history.batch(range(5), "tasks(10)")
    assert (read_by(plan).placement.partitions, left) == (2, 40)
    plan, left = history.batch(range(5), "tasks(3)")
    assert (read_by(plan).placement.partitions, left) == (10, 5)
    assert history.now() == {f"key-{number}": 4 if number < 5 else 1 for number in range(40)}


def streaks(source: str, partitions: int) -> Pipeline:
    def streak(clicks: Flow) -> Flow:
        columns = {"k": "VARCHAR", "n": "BIGINT"}
        return clicks.process("tests.functions:streak", columns, state=STREAK, name="streak")

    return totals(source, partitions, streak)


@pytest.mark.long
def test_a_key_that_was_dropped_stays_so_when_its_run_is_merged(store: Store, tmp_path: Path) -> None:
    history = History(store, tmp_path, streaks)
    # Every fifth minute what is kept of a key is dropped.
    for numbers, minute in ((range(40), 1), (range(4), 5), (range(4, 8), 6), (range(8, 12), 7), (range(4), 8)):
        history.land([Click(f"key-{number}", number, minute) for number in numbers], [], 4)
        ref = history.plan(Settings(), 4)
        written = history.publish(ref)
    assert [(run.records, run.merged) for run in read_by(ref.load()[1]).runs] == [(12, False), (40, False)]
    assert written["totals"] == [(f"key-{number}", 1) for number in range(4)]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            lambda clicks: clicks.aggregate("count(*) AS n, max(id) AS last").latest("last", name="totals"),
            "its operation changed from combine to latest",
        ),
        (
            lambda clicks: summed(clicks, "sum(n)::BIGINT AS n, max(last)::BIGINT AS last"),
            "its columns changed from sum(n)::BIGINT AS n, max(last) AS last "
            "to sum(n)::BIGINT AS n, max(last)::BIGINT AS last",
        ),
        (
            lambda clicks: summed(clicks, last="max(id)::INTEGER").select("n, last::BIGINT AS last"),
            "step clicks.aggregate changed from aggregate by k (string): count(*) AS n, max(id) AS last "
            "to aggregate by k (string): count(*) AS n, max(id)::INTEGER AS last",
        ),
    ],
    ids=["operation", "expressions", "types"],
)
def test_a_step_that_is_changed_does_not_go_on(
    change: Callable[[Flow], Flow], what: str, store: Store, tmp_path: Path
) -> None:
    history = Totals(store, tmp_path)
    history.batch(range(5))
    changed = History(store, tmp_path, lambda source, partitions: totals(source, partitions, change))
    changed.land([Click("key-1", 1, 1)], [], 4)
    with pytest.raises(Refused) as refused:
        changed.plan(Settings(), 4)
    (finding,) = (finding for finding in refused.value.findings if finding.what == what)
    assert finding.where == "state of totals, left by batch 0"
    assert "change it back" in finding.then
    assert "`coset plan kept --begin-anew totals`: table 'totals' has 5 rows, and those to come would" in finding.then


def test_what_was_kept_in_other_types_is_not_gone_on_from_though_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    history = Totals(store, tmp_path)
    history.batch(range(5))

    def change(clicks: Flow) -> Flow:
        return summed(clicks, last="max(id)::INTEGER").select("n, last::BIGINT AS last")

    changed = History(store, tmp_path, lambda source, partitions: totals(source, partitions, change))
    changed.land([Click("key-1", 1, 1)], [], 4)
    with pytest.raises(Refused, match="its column last is INTEGER and was BIGINT, which may not fit"):
        changed.plan(Settings(go_on=("totals",)), 4)
    ref = changed.plan(Settings(begin_anew=("totals",)), 4)
    changed.publish(ref, judged=False)
    assert history.now() == {"key-1": 1}


@pytest.mark.long
def test_what_no_kept_batch_goes_on_from_is_swept(store: Store, tmp_path: Path) -> None:
    history = Totals(store, tmp_path)
    for _ in range(STATES_KEPT + 4):
        history.batch(range(4))
    pipeline = totals(f"{store.root}/topics", 4)
    there = {entry.key for entry in store.list("kept/left/")}
    gone = {file.key for file in left_over(pipeline, store).files if "/left/" in file.key}
    needed = {
        file.path
        for batch in range(4, STATES_KEPT + 4)
        for state in (kept_state(Ledger(store, "kept"), "totals", batch),)
        for run in state.read.runs
        for verdict in (Ledger(store, "kept").verdict(run.batch),)
        if verdict
        for file in verdict.artefacts
        if file.role is Role.STATE
    }
    assert gone
    assert there - gone >= needed
    sweep(pipeline, store)
    assert history.now() == {f"key-{number}": STATES_KEPT + 4 for number in range(4)}
    history.batch(range(4))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Three batches of clicks, by the pipeline of the command line. Nothing of these tests changes them."""
    folder = tmp_path_factory.mktemp("published")
    store = store_at(str(folder / "store"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DELAYS_SOURCE", f"{store.root}/topics")
        environment.setenv("COSET_STORE", store.root)
        history = History(store, folder)
        for batch, count in enumerate((30, 4, 3)):
            history.land([Click(f"key-{number}", number, batch) for number in range(count)], [], 4)
            result = coset("run", KEPT, "--runner", "local", "--docs", str(folder / "docs"))
            assert result.exit_code == 0, result.output
        yield


@pytest.mark.usefixtures("published")
def test_state_is_shown() -> None:
    shown = [
        coset("state", KEPT),
        coset("state", KEPT, "totals"),
        coset("state", KEPT, "totals", "--key", "key-3"),
        coset("state", KEPT, "newest", "--key", "key-2", "--batch", "1"),
        coset("state", KEPT, "totals", "--key", "key-99"),
    ]
    assert [result.exit_code for result in shown] == [0] * len(shown)
    expect_golden("cli_state.txt", "".join(result.stdout for result in shown))
    plain = json.loads(coset("state", KEPT, "totals", "--key", "key-3", "--json").stdout)
    assert plain["rows"] == [{"k": "key-3", "n": 2, "last": 3}]
    assert [run["rows"] for run in plain["runs"]] == [3, 4, 30]
    assert [state["step"] for state in json.loads(coset("state", KEPT, "--json").stdout)] == ["totals", "newest"]


@pytest.mark.usefixtures("published")
def test_state_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"
    assert coset("state", KEPT, "totals", "--parquet", str(file)).stdout == f"30 rows written to {file}\n"
    table = pq.read_table(file)
    assert table.column_names == ["k", "n", "last"]
    assert sorted(table["n"].to_pylist()) == [1] * 26 + [2] + [3] * 3


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("words", "what", "then"),
    [
        (("total",), "no step 'total' has state", "name one of totals, newest"),
        (("totals", "--batch", "7"), "batch 7 is not published", "coset status"),
        (("totals", "--parquet", "/no/such/folder/a.parquet"), "the file cannot be written", "a folder that is there"),
    ],
)
def test_what_is_not_there_is_said(words: tuple[str, ...], what: str, then: str) -> None:
    result = coset("state", KEPT, *words)
    assert result.exit_code == 3
    assert what in result.stderr
    assert then in result.stderr


def batch(history: History, keys: int = 300) -> tuple[BatchRef, str]:
    """Run a batch that has so many keys; the sentence on its one group."""
    history.land([Click(f"key-{number}", number, 0) for number in range(keys)], [], 4)
    ref = history.plan(Settings.parse(groups=1), 4)
    with Local(processes=1) as runner:
        said = runner.group(ref, 0)
    return ref, said


def garbled(folder: Path) -> None:
    for copy in folder.iterdir():
        copy.write_bytes(copy.read_bytes()[:-1] + b"!")


def emptied(folder: Path) -> None:
    for copy in folder.iterdir():
        copy.unlink()


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def fetched(said: str) -> float:
    """The bytes of state that a group fetched, by its sentence."""
    found = re.search(r"([\d.]+) (kB|B) of state were read(?:, ([\d.]+) (kB|B) of it from the cache)?", said)
    assert found is not None, said
    units = {"B": 1, "kB": 1000, None: 0}
    return float(found[1]) * units[found[2]] - float(found[3] or 0) * units[found[4]]


def test_a_group_that_runs_where_it_ran_fetches_less_than_elsewhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(store, tmp_path, totals)
    planned, costs = [], []
    for number, (place, keys) in enumerate([("here", 3000), ("here", 5), ("here", 5), ("elsewhere", 5), ("here", 5)]):
        monkeypatch.setenv("COSET_LOCATION", place)
        monkeypatch.setenv(FOLDER, str(tmp_path / place))
        ref, said = batch(history, keys)
        assert history.publish(ref)["totals"] == sorted(((f"key-{n}", number + 1, n) for n in range(keys)), key=repr)
        planned.append(ref.load()[1].groups[0].location)
        costs.append(fetched(said) if number else 0)
    assert planned == [None, "here", "here", "here", "elsewhere"]
    _, cold, same, other, back = costs
    # What the last batches left, beside all that was ever kept.
    assert 0 < 5 * same < cold <= other
    assert 0 < 5 * back < other


def test_what_did_not_change_is_not_fetched_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "copies"))
    history = History(store, tmp_path, totals)
    said = []
    for _ in range(3):
        ref, sentence = batch(history)
        history.publish(ref)
        said.append(sentence)
    assert "of state" not in said[0]
    assert "of state were read" in said[1]
    assert "copies" not in said[1]
    assert "of it from the cache" in said[2]


def test_a_copy_that_is_spoiled_is_fetched_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "copies"
    monkeypatch.setenv(FOLDER, str(folder))
    history = History(store, tmp_path, totals)
    for _ in range(2):
        ref, _ = batch(history)
        history.publish(ref)
    for before, spoil in enumerate((garbled, emptied, removed), 2):
        assert list(folder.iterdir())
        spoil(folder)
        ref, said = batch(history)
        assert "copies" not in said
        assert history.publish(ref)["totals"] == sorted(((f"key-{n}", before + 1, n) for n in range(300)), key=repr)


def test_the_copies_that_were_longest_not_used_go_first(tmp_path: Path) -> None:
    copies = Copies(tmp_path, most=3 * (100 + 32))
    for name in "abc":
        assert copies.get(name, lambda: bytes(100)) == bytes(100)
    oldest, *others = sorted(tmp_path.iterdir())
    for age, path in enumerate((oldest, *others)):
        os.utime(path, (age, age))
    copies.get("d", lambda: bytes(100))
    assert not oldest.exists()
    assert {*others} <= {*tmp_path.iterdir()}
    assert (copies.fetched, copies.found) == (400, 0)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "copies"))
    with pytest.raises(Refused, match="the folder cannot be made"):
        Copies.of_environment()
    monkeypatch.setenv(FOLDER, str(tmp_path / "copies"))
    monkeypatch.setenv(MOST, "ten")
    with pytest.raises(Refused, match="'ten' is no number of bytes"):
        Copies.of_environment()
