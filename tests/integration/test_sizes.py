"""`coset schemes`, in process, on streams that were landed in a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.batches.ref import BatchRef
from coset.cli.candidates import Basis, compare
from coset.cli.main import app
from coset.cli.output import show
from coset.cli.sizes import told
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.plan import TaskRef
from partitioning.model.schemes import HotKeys
from partitioning.model.statistics import HeavyShare, KeyFigures, Statistics, TaskFigures
from partitioning.sizing.hotkeys import hot_keys, hot_partitions
from partitioning.sizing.proposal import Targets
from partitioning.values import replace as replace_value
from tests.commands import coset, succeeded
from tests.goldens import expect_golden
from tests.landed import land_table
from tests.plans import COLUMNS, arrived, plan_of, tails, tails_found
from tests.running import run_and_publish
from tests.there import there

PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")
STAGE = "flights+planes"


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with 1000 flights, 700 of them of one plane; all else goes to the same store."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    planes = pa.table({"tailnum": [f"N{number}" for number in range(50)], "seats": pa.array(range(50), pa.int64())})
    land_table(planes, "planes", f"{store.root}/topics", key="tailnum", partitions=2)
    arrive(store, 1000)
    return store


def arrive(store: Store, count: int) -> None:
    keys = ["N7" if number % 10 < 7 else f"N{number % 50}" for number in range(count)]
    table = pa.table({"tailnum": keys, "delay": pa.array(range(count), pa.int64())})
    land_table(table, "flights", f"{store.root}/topics", key="tailnum", partitions=4)


def compared(*words: str) -> dict[str, Any]:
    result = succeeded("schemes", PIPELINE, "--json", *words)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def row(document: dict[str, Any], name: str) -> dict[str, Any]:
    (stage,) = document["stages"]
    (found,) = (each for each in stage["schemes"] if name in each["names"])
    return dict(found)


def published(store: Store, docs: Path) -> None:
    """Plan the next batch, run it and publish it."""
    succeeded("plan", PIPELINE)
    plan = there(Ledger(store, "delays").standing().plan)
    run_and_publish(BatchRef.of(store, plan), docs)


def test_the_comparison_reads_as_the_golden_file(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(tails(), tails_found(25_000, 10_000))
    counts = enumerate([170_000, 70_000, 70_000, 70_000])
    took = {TaskRef(STAGE, task): TaskFigures(count, 10 * count, count / 1e5) for task, count in counts}
    hot = KeyFigures(TaskRef(STAGE, 0), "N1", {"flights": 80_000})
    past = Statistics(0, tasks=took, cosets={STAGE: 4}, keys=(hot,))
    found = Basis(
        tails(),
        tuple(tails_found(25_000, 10_000)),
        {"tail_activity": COLUMNS},
        0,
        None,
        None,
        (past,),
        "Batch 1 would read 380,000 records",
    )
    result = compare(found, Settings(), ["tasks(3)", "cogroup"], Targets(bytes=300_000, seconds=0.3))
    show(*told(found, result, hot_keys(plan, past)))
    expect_golden("cli_schemes.txt", capsys.readouterr().out)


def test_a_hot_key_that_could_be_split_is_shown_with_what_that_saves_and_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipeline = Pipeline("counts", source="s3://landing/topics")
    parts = pipeline.stream("flights", key="tailnum", partitions=4).partial("count(*) AS n", by="tailnum", name="parts")
    parts.combine("sum(n) AS n", name="totals").write("counts")
    found = (arrived("flights", (1_000, 9_000, 1_000, 1_000)),)
    took = {TaskRef("flights", task): TaskFigures(count, 10 * count) for task, count in enumerate((1, 9, 1, 1))}
    key = KeyFigures(TaskRef("flights", 1), "N1", {"flights": 8})
    past = Statistics(0, tasks=took, keys=(key,), heavy=(HeavyShare("flights", 1, "N1", 8_000, 9_000),))
    basis = Basis(pipeline, found, {"counts": COLUMNS}, 0, None, None, (past,), "")
    plan = there(basis.plan())
    result = compare(basis, Settings(), [], Targets())
    (split,) = result.splits
    assert (split.stage, str(split), split.task, split.key, split.tasks) == ("flights", "flights-1", 1, "N1", 9)
    assert (split.of_stage, split.of_key, split.longest) == (Fraction(3, 4), Fraction(67, 100), Fraction(1, 9))
    # A row of the key from each range, and one of each other record: 960 + 9 of 10 bytes.
    assert split.moves == 9_690
    show(*told(basis, result, hot_keys(plan, past)))
    shown = capsys.readouterr().out
    assert "flights-1   flights      1   75.0 %   N1    67.0 %          9   −88.9 %        +9.7 kB" in shown
    assert '`hot_keys = "split"` in a settings file plans the next batch so.' in shown
    assert "split    hot_keys = 'split' gives ranges of its stream partition to several tasks" in shown


def test_a_hot_key_that_could_have_a_task_of_its_own_is_shown_with_what_that_saves_and_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = tuple(tails_found(25_000, 10_000))
    counts = enumerate([170_000, 70_000, 70_000, 70_000])
    took = {TaskRef(STAGE, task): TaskFigures(count, 10 * count) for task, count in counts}
    key = KeyFigures(TaskRef(STAGE, 0), "N1", {"flights": 95_000})
    past = Statistics(0, tasks=took, cosets={STAGE: 4}, keys=(key,))
    basis = Basis(tails(), found, {"tail_activity": COLUMNS}, 0, None, None, (past,), "")
    result = compare(basis, Settings(), [], Targets())
    (own,) = result.own
    task = placement_hash("N1") % 4
    assert (own.stage, own.key, own.of_stage, own.beside, own.task) == (STAGE, "N1", Fraction(1, 4), task, 4)
    # A quarter of the stage and a sixteenth of a task, beside a quarter and a task.
    assert own.longest == (Fraction(1, 4) + Fraction(3, 16) / 16) / (Fraction(1, 4) + Fraction(3, 16))
    # A partition of flights in three, as 12 of them share 4 with 64, and one of planes in 8.
    assert own.reads_again == 10 * (3 * 25_000 + 10_000)
    show(*told(basis, result, None))
    shown = capsys.readouterr().out
    assert f"N1    flights+planes   25.0 %            {task}                 4   −40.2 %" in shown
    assert '`hot_keys = "own task"` in a settings file plans the next batch so.' in shown
    # What is proposed goes by the number of tasks without it.
    with_own = replace(basis, history=(replace_value(past, cosets={}),))
    sized = compare(with_own, Settings(hot_keys=HotKeys.OWN_TASK), [], Targets()).proposal.stages[0]
    assert sized.before == 4


def test_a_hot_key_of_a_join_that_could_be_split_is_shown_with_what_that_saves_and_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = tuple(tails_found(25_000, 10_000))
    task = placement_hash("N1") % 4
    counts = dict.fromkeys(range(4), 60_000) | {task: 220_000}
    took = {TaskRef(STAGE, number): TaskFigures(count, 10 * count) for number, count in counts.items()}
    key = KeyFigures(TaskRef(STAGE, task), "N1", {"flights": 160_000})
    past = Statistics(0, tasks=took, cosets={STAGE: 4}, keys=(key,))
    basis = Basis(tails(), found, {"tail_activity": COLUMNS}, 0, None, None, (past,), "")
    plan = there(basis.plan())
    result = compare(basis, Settings(), [], Targets())
    (split,) = result.joins
    assert (split.stage, split.key, split.of_stage, split.beside) == (STAGE, "N1", Fraction(2, 5), task)
    assert (split.task, split.tasks) == (4, 3)
    # A task without the key has 15 % then, and the one with it had 55 %.
    assert split.longest == Fraction(15, 55)
    # A partition of flights in three ranges, and one of planes in each of the tasks.
    assert split.reads_again == 10 * (25_000 + 3 * 10_000)
    show(*told(basis, result, hot_keys(plan, past)))
    shown = capsys.readouterr().out
    assert f"N1    flights+planes   40.0 %            {task}   4 to 6             −72.7 %        +550.0 kB" in shown
    assert '`hot_keys = "split"` in a settings file plans the next batch so.' in shown
    assert "split    hot_keys = 'split' gives ranges of it in one stream to several tasks" in shown


def test_unifiers_follow_the_stage_before_them_whatever_is_compared() -> None:
    pipeline = Pipeline("unified", source="s3://landing/topics")
    parts = pipeline.stream("flights", key="tailnum", partitions=12).partial("count(*) AS n", by="dep_delay")
    parts.combine("sum(n) AS n", fan_in=3, name="totals").write("totals")
    basis = Basis(pipeline, (arrived("flights", [1000] * 12),), {"totals": COLUMNS}, 0, None, None, (), "")
    result = compare(basis, Settings(), ["flights=tasks(3)"], Targets())
    level = "flights.partial.exchange.1"
    (now,) = result.rows[level]
    assert (now.names, now.figures.tasks if now.figures else None) == (("max", "now"), 48)
    (sized,) = (sized for sized in result.proposal.stages if sized.stage == level)
    assert (sized.scheme, sized.tasks) == (None, 48)
    assert sized.why == "stays at 48: the fan-in of totals says how many unifiers it needs"
    assert {"tasks(3)"} <= {name for row in result.rows["flights"] for name in row.names}


def test_schemes_are_compared_on_what_has_arrived_and_nothing_is_stored(landed: Store) -> None:
    document = compared()
    assert document["sentence"] == "Batch 0 would read 1,050 records"
    assert (document["history"], document["hot_keys"]) == ([], None)
    now = row(document, "now")
    assert now["names"][:2] == ["cogroup", "now"]
    assert (now["tasks"], now["reads"], now["amplification"], now["filtering"]) == (2, 6, 1.0, 0)
    assert [row(document, "elastic(2)")[each] for each in ("tasks", "reads", "filtering")] == [4, 8, 4]
    assert [row(document, "elastic(4)")[each] for each in ("tasks", "reads", "filtering")] == [8, 16, 8]
    assert row(document, "tasks(4)")["names"] == ["elastic(2)", "tasks(4)"]
    assert row(document, "now")["bytes"]["heaviest"] > row(document, "elastic(2)")["bytes"]["heaviest"]
    assert not list(landed.list("delays/"))


def test_what_is_refused_is_a_row_with_its_reason_and_hot_partitions_are_told(landed: Store) -> None:
    (finding,) = row(compared(), "max")["refused"]
    assert finding["what"] == "scheme max keeps no keys together, but totals, delays needs them together"
    text = coset("schemes", PIPELINE).stdout
    assert "\nmax: refused " in text
    assert "max is refused: scheme max keeps no keys together" in text
    (hot,) = compared()["hot_partitions"]
    assert (hot["stage"], hot["stream"], hot["records"] >= 700, hot["of_mean"] >= 2.8) == (STAGE, "flights", True, True)
    assert hot["scheme"] == "records(250)"
    assert hot["refused"][0]["what"].startswith("scheme records(250) keeps no keys together, but totals, delays needs")


def test_given_schemes_and_targets_are_used(landed: Store) -> None:
    document = compared("--scheme", "tasks(3)", "--scheme", "tasks(6)", "--target-bytes", "1", "--max-tasks", "7")
    assert row(document, "tasks(3)")["reads"] == 18
    assert row(document, "tasks(6)")["tasks"] == 6
    (stage,) = document["stages"]
    assert 2 < stage["tasks"] <= 7
    assert f"tasks({stage['tasks']})" == stage["proposed"]
    assert row(document, "proposed")["tasks"] == stage["tasks"]
    assert compared("--min-tasks", "4")["stages"][0]["tasks"] == 4
    assert row(compared("--scheme", "totals=tasks(5)"), "tasks(5)")["tasks"] == 5


def test_the_first_batch_goes_by_bytes_and_an_open_one_by_what_it_reads(landed: Store) -> None:
    text = coset("schemes", PIPELINE, "--target-seconds", "1").stdout
    assert "No batch was published yet, so the proposal goes by bytes only." in text
    assert "no batch has yet shown how many seconds that takes" in text
    assert "Hot keys: unknown, as there are no receipts of a published batch." in text
    coset("plan", PIPELINE, "--limit", "10")
    document = compared()
    assert document["sentence"] == (
        "Batch 0 is open and keeps its plan: schemes are compared on the 90 records of that batch"
    )


def test_after_a_batch_its_seconds_and_its_hot_keys_are_known(landed: Store, tmp_path: Path) -> None:
    published(landed, tmp_path)
    arrive(landed, 500)
    document = compared("--target-seconds", "0.000001")
    assert document["sentence"] == "Batch 1 would read 550 records"
    assert document["history"] == [0]
    assert "at the pace of the last batches" in document["stages"][0]["why"]
    (key,) = document["hot_keys"]
    assert (key["key"], key["stage"], key["records"]) == ("N7", STAGE, 720)
    assert (key["remedy"], key["scheme"]) == ("nothing", None)
    text = coset("schemes", PIPELINE).stdout
    assert "Hot keys of the last published batch" in text
    assert "\nN7 " in text


def test_when_nothing_is_new_the_last_batch_is_compared(landed: Store, tmp_path: Path) -> None:
    before = compared()
    published(landed, tmp_path)
    after = compared()
    assert after["sentence"] == (
        "Nothing is new since batch 0: schemes are compared on the 1,050 records of that batch"
    )
    assert [row(after, name)["bytes"] for name in ("now", "elastic(4)")] == [
        row(before, name)["bytes"] for name in ("now", "elastic(4)")
    ]


def test_wrong_targets_and_schemes_are_refused(landed: Store) -> None:
    result = coset("schemes", PIPELINE, "--min-tasks", "9", "--max-tasks", "3")
    assert (result.exit_code, "min_tasks is 9, max_tasks is 3" in result.stderr) == (3, True)
    result = coset("schemes", PIPELINE, "--scheme", "flihgts=tasks(3)")
    assert (result.exit_code, "there is no stage or step 'flihgts'" in result.stderr) == (3, True)
    result = coset("schemes", PIPELINE, "--scheme", "spread")
    assert (result.exit_code, "unknown scheme 'spread'" in result.stderr) == (3, True)


def skewed(build: Callable[[Flow], Flow], ends: Sequence[int] = (100, 900, 100, 100)) -> Basis:
    """What is there to compare on of a pipeline whose second partition is hot."""
    pipeline = Pipeline("late", source="s3://landing/topics")
    build(pipeline.stream("flights", key="tailnum", partitions=len(ends))).to_stream().write("late")
    return Basis(pipeline, (arrived("flights", ends),), {"late": COLUMNS}, 0, None, None, (), "Batch 0")


def by_tail(flights: Flow) -> Flow:
    return flights.partial("count(*) AS n", by="tailnum", name="parts").combine("sum(n) AS n", name="counted")


@pytest.mark.parametrize(
    "build", [lambda flights: flights.filter("dep_delay > 60"), by_tail], ids=["filter", "partial"]
)
def test_a_hot_partition_is_named_with_the_setting_that_spreads_it(
    build: Callable[[Flow], Flow], capsys: pytest.CaptureFixture[str]
) -> None:
    basis = skewed(build)
    result = compare(basis, Settings(), [], Targets())
    ((hot, row),) = result.hot
    assert (str(hot), hot.records, float(hot.of_mean), row.findings) == ("flights-1", 900, 3.0, ())
    (other,) = (row for row in result.rows["flights"] if "records(300)" in row.names)
    assert other == row
    assert (other.figures.tasks, other.figures.heaviest) == (6, 3000) if other.figures else False
    show(*told(basis, result, None))
    shown = capsys.readouterr().out
    assert "--scheme 'flights=records(300)'   6 tasks, the heaviest of which reads 3.0 kB" in shown
    dealt = there(basis.plan(Settings.parse(scheme="flights=records(300)")))
    assert not hot_partitions(dealt)


def test_where_keys_have_to_meet_it_says_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    basis = skewed(lambda flights: flights.aggregate("count(*) AS n", name="counted"))
    result = compare(basis, Settings(), [], Targets())
    assert not any("records" in name for row in result.rows["flights"] for name in row.names)
    show(*told(basis, result, None))
    shown = capsys.readouterr().out
    assert "flights-1   flights       900     3.00   none      aggregate by partial() and combine(), and give" in shown


def test_without_a_hot_partition_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    basis = skewed(lambda flights: flights.filter("dep_delay > 60"), (100, 199, 100, 100))
    show(*told(basis, compare(basis, Settings(), [], Targets()), None))
    assert "Hot partitions" not in capsys.readouterr().out


@pytest.fixture
def landed_as_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    tails = [f"N{number}" for number in range(400)]
    numbers = pa.array(range(400), pa.int64())
    land_table(
        pa.table({"tailnum": tails, "delay": numbers}), "flights", f"{store.root}/topics", key="tailnum", partitions=4
    )
    land_table(
        pa.table({"tailnum": tails, "seats": numbers}), "planes", f"{store.root}/topics", key="tailnum", partitions=2
    )
    return store


def schemes_of(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result


def test_what_is_proposed_is_planned_by_the_file_that_is_written(landed_as_written: Store, tmp_path: Path) -> None:
    file = str(tmp_path / "settings.toml")
    words = ("schemes", PIPELINE, "--target-bytes", "2000", "--write", file)
    (proposed,) = json.loads(schemes_of(*words, "--json").stdout)["stages"]
    assert proposed["tasks"] > 2
    said = schemes_of(*words).stdout
    again = f"coset run {PIPELINE} --settings {file} --store {landed_as_written.root}"
    assert f"Written to {file}: `{again}` plans by what is proposed" in said
    plan = json.loads(schemes_of("plan", PIPELINE, "--settings", file, "--json").stdout)["plan"]
    (stage,) = plan["stages"]
    assert (stage["name"], stage["cosets"], stage["given"]) == (STAGE, proposed["tasks"], True)


def test_the_other_settings_stay_as_they_are(landed_as_written: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('limit = 7\ngrouper = "round-robin"\n[steps.totals]\nscheme = "tasks(2)"\n')
    words = ("--settings", str(tmp_path / "mine.toml"), "--target-bytes", "2000", "--write", str(tmp_path / "new.toml"))
    schemes_of("schemes", PIPELINE, *words)
    text = (tmp_path / "new.toml").read_text()
    settings = Settings.read(text, "new.toml")
    assert (settings.limit, settings.grouper) == (7, "round-robin")
    assert list(settings.schemes) == [STAGE]
    assert "# Proposed by `coset schemes delays`." in text
    assert f"# {STAGE}: 2 -> " in text


def test_a_file_that_cannot_be_written_is_refused(landed_as_written: Store, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["schemes", PIPELINE, "--write", str(tmp_path / "none" / "settings.toml")])
    assert result.exit_code == 3
    assert "the settings cannot be written" in result.stderr
