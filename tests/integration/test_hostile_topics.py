"""Topics, tables and numbers that nobody means to have: what planning says of them, and that its advice works."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.auth
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.batches import steps
from coset.batches.planning import preview
from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.schemes import tasks
from tests.batches import erase
from tests.landed import land_file
from tests.running import next_batch, run_and_publish
from tests.there import there

LANDING = (Path(__file__).parents[2] / "docs" / "internals" / "landed-files.md").read_text()
VIEWS = pa.table({"user": ["a", "b"], "v": [1, 2]})


def pipeline(store: Store) -> Pipeline:
    counts = Pipeline("counts", source=f"{store.root}/topics")
    counts.stream("views", key="user", partitions=2, hash="opaque").select("v").write("counts")
    return counts


def land(store: Store, partition: int, first: int, table: pa.Table = VIEWS) -> None:
    land_file(table, "views", f"{store.root}/topics", partition, first)


def forget(store: Store, prefix: str) -> None:
    """Remove what retention would."""
    erase(store.root, *(entry.key for entry in store.list(f"topics/views/{prefix}")))


@pytest.fixture
def published(store: Store, tmp_path: Path) -> Store:
    """A store whose four landed records are published."""
    for partition in range(2):
        land(store, partition, 0)
    run_and_publish(next_batch(pipeline(store), store.root), tmp_path)
    return store


def refused(store: Store) -> Finding:
    """The only finding with which the next batch is refused."""
    with pytest.raises(Refused) as caught:
        preview(pipeline(store), store)
    (finding,) = caught.value.findings
    return finding


def coset(store: Store, tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "counts.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counts', source='{store.root}/topics')\n"
        "views = pipeline.stream('views', key='user', partitions=2, hash='opaque')\n"
        "views.select('v').write('counts')\n"
    )
    return CliRunner().invoke(app, [words[0], str(file), "--store", store.root, *words[1:]])


def test_a_stream_of_which_nothing_is_left_was_read_before_and_goes_on_from_there(published: Store) -> None:
    forget(published, "")
    finding = refused(published)
    assert finding.what == (
        "views: no file is left of it, and it was read before: views-0 up to offset 2, views-1 up to offset 2"
    )
    assert finding.where == f"{published.root}/topics/views/"
    assert finding.then.startswith("land what comes next, from these offsets on")
    assert "no file is left of it, and it was read before: views-0 up to offset" in LANDING
    for partition in range(2):
        land(published, partition, 2)
    plan = there(preview(pipeline(published), published).plan)
    assert plan.records == 4


def test_where_less_lies_than_is_committed_status_says_so_and_no_lag(published: Store, tmp_path: Path) -> None:
    forget(published, "partition=0/")
    land(published, 0, 0, VIEWS.slice(0, 1))
    shown = coset(published, tmp_path, "status")
    assert shown.exit_code == 0, shown.output
    assert "views-0 is committed up to offset 2, but its files end at offset 1." in shown.stdout
    assert "Lag: unknown in 2 stream partitions." in shown.stdout
    assert "-2" not in shown.stdout


def test_a_partition_whose_files_expired_after_they_were_read_is_idle(published: Store, tmp_path: Path) -> None:
    forget(published, "partition=0/")
    shown = coset(published, tmp_path, "status")
    assert shown.exit_code == 0, shown.output
    assert "Lag: 0 in 2 stream partitions." in shown.stdout
    land(published, 1, 2)
    plan = there(preview(pipeline(published), published).plan)
    assert [str(offsets) for offsets in plan.ranges()] == ["views-0@[2,2)", "views-1@[2,4)"]


def test_columns_that_differ_in_case_only_are_refused_before_a_plan_is_stored(store: Store) -> None:
    for partition in range(2):
        land(store, partition, 0, pa.table({"user": ["a"], "v": [1], "V": [2]}))
    with pytest.raises(Refused) as caught:
        steps.plan(pipeline(store), store.root)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.what) == (Kind.SQL_TYPE, "two columns are named 'v'")
    assert finding.where == "stream 'views'"
    assert finding.then == "land it with other column names; SQL does not tell cases apart"
    assert finding.what in LANDING
    assert Ledger(store, "counts").plan(0) is None


def test_far_more_tasks_than_records_are_warned_of(store: Store) -> None:
    for partition in range(2):
        land(store, partition, 0)
    keyed = Pipeline("counts", source=f"{store.root}/topics")
    keyed.stream("views", key="user", partitions=2).aggregate("count(*) AS views").write("counts")
    sentence = preview(keyed, store, Settings(scheme=tasks(1000))).sentence
    assert sentence == (
        "Batch 0 is planned: 4 records in 2 task groups; 996 of 1,000 tasks have nothing to do, so choose fewer"
    )
    assert "nothing to do" not in preview(keyed, store, Settings(scheme=tasks(24))).sentence


def test_a_delta_log_of_garbage_is_one_clear_finding_without_frames(published: Store) -> None:
    log = "tables/counts/_delta_log/00000000000000000001.json"
    held = there(published.get(log))
    published.put(log, b"\x00garbage\xff")
    finding = refused(published)
    assert finding.what.startswith("the Delta log cannot be read or written: ")
    assert finding.where == f"{published.root}/tables/counts"
    assert finding.then == "run the same command again; if it fails again, restore the table's _delta_log/ as it was"
    assert not any(frame in finding.what for frame in ("start_thread", "<unknown>", "\n", "at /"))
    published.put(log, held)
    assert preview(pipeline(published), published).plan is None


@pytest.mark.usefixtures("s3")
def test_a_clock_that_is_wrong_has_to_be_set(published: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    late = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: late)
    with pytest.raises(CosetError) as caught:
        preview(pipeline(published), published)
    (finding,) = caught.value.findings
    assert "RequestTimeTooSkewed" in finding.what
    assert finding.then == "set this machine's clock"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("runner", [(), ("--runner", "spark-submit")])
def test_a_master_that_is_none_is_refused_before_a_plan_is_stored(
    runner: tuple[str, ...], store: Store, tmp_path: Path
) -> None:
    for partition in range(2):
        land(store, partition, 0)
    shown = coset(store, tmp_path, "run", "--master", "nonsense://x", *runner)
    assert shown.exit_code == 3, shown.output
    assert "'nonsense://x' is not a Spark master" in shown.stderr
    assert "next:  name local[*], spark://host:port" in shown.stderr
    assert "at org.apache" not in shown.output
    assert Ledger(store, "counts").plan(0) is None


def test_a_module_beside_the_pipelines_file_is_not_found(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_IMPORTS", "lonely")
    (tmp_path / "lonely.py").write_text("def score(table):\n    return table\n")
    for partition in range(2):
        land(store, partition, 0)
    coset(store, tmp_path, "status")
    file = tmp_path / "counts.py"
    step = "views.process('lonely:score', {'user': 'VARCHAR'}).write('counts')"
    file.write_text(file.read_text().replace("views.select('v').write('counts')", step))
    command = ("explain", str(file), "--store", store.root)
    assert "'lonely:score' cannot be imported" in CliRunner().invoke(app, command).stderr
    monkeypatch.syspath_prepend(tmp_path)
    shown = CliRunner().invoke(app, command)
    assert "Batch 0 would be planned" in shown.stdout, shown.output
