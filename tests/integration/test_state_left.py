"""What a batch leaves of state: its own part, and little more; how that is shown, gone on from, and swept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from coset.batches.kept import kept_state, rows_kept
from coset.batches.sweeping import STATES_KEPT, left_over, sweep
from coset.cli.main import app
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.model.artefact import Role
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateInput
from partitioning.sections import markdown
from tests.goldens import expect_golden
from tests.histories import STREAK, Click, History
from tests.running import task_receipts
from tests.totals import totals

KEPT = str(Path(__file__).parents[1] / "pipelines" / "kept.py")
KEYS = 600


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
    assert history.batch(range(KEYS))[1] == KEYS
    wanted = dict.fromkeys((f"key-{number}" for number in range(KEYS)), 1)
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
    assert [run.records for run in read_by(plan).runs] == [60, 60, KEYS]
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


def coset(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.fixture
def published(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three batches of clicks, by the pipeline of the command line."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    history = History(store, tmp_path)
    for batch, count in enumerate((30, 4, 3)):
        history.land([Click(f"key-{number}", number, batch) for number in range(count)], [], 4)
        result = coset("run", KEPT, "--runner", "local", "--docs", str(tmp_path / "docs"))
        assert result.exit_code == 0, result.output
    return store


def test_state_is_shown(published: Store, tmp_path: Path) -> None:
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


def test_state_is_a_table(published: Store, tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"
    assert coset("state", KEPT, "totals", "--parquet", str(file)).stdout == f"30 rows written to {file}\n"
    table = pq.read_table(file)
    assert table.column_names == ["k", "n", "last"]
    assert sorted(table["n"].to_pylist()) == [1] * 26 + [2] + [3] * 3


@pytest.mark.parametrize(
    ("words", "what", "then"),
    [
        (("total",), "no step 'total' has state", "name one of totals, newest"),
        (("totals", "--batch", "7"), "batch 7 is not published", "coset status"),
        (("totals", "--parquet", "/no/such/folder/a.parquet"), "the file cannot be written", "a folder that is there"),
    ],
)
def test_what_is_not_there_is_said(words: tuple[str, ...], what: str, then: str, published: Store) -> None:
    result = coset("state", KEPT, *words)
    assert result.exit_code == 3
    assert what in result.stderr
    assert then in result.stderr
