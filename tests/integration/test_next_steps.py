"""The next step that a finding names is right where it is shown: it is run as it is written, and leads on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.request import backfill
from coset.cli.pipelines import load
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from tests.clicked import landed
from tests.commands import coset, succeeded
from tests.followed import commands, in_another_shell
from tests.histories import Click, table_of
from tests.landed import land_file, land_table
from tests.sparse import FIRST, SECOND, land
from tests.there import there

LOCAL = ("--runner", "local")
# An open batch of now goes first, and is not waited for here.
BESIDE = (*LOCAL, "--wait-for-live", "0")


@pytest.fixture
def file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipeline in a file that no folder of pipelines has, its name not that of the file; two published batches."""
    monkeypatch.setenv("CLICKS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    file = tmp_path / "by hand.py"
    written(file, "count(*) AS n")
    for batch in range(2):
        landed(store, batch)
        succeeded("run", str(file), *LOCAL)
    return str(file)


def written(file: Path, aggregates: str, more: str = "") -> None:
    file.write_text(
        "import os\n"
        "from coset import Pipeline\n"
        'pipeline = Pipeline("clicked", source=os.environ["CLICKS_SOURCE"])\n'
        'clicks = pipeline.stream("clicks", key="k", partitions=2)\n'
        f'clicks.aggregate("{aggregates}", name="counts").write("counts"{more})\n'
    )


def first_file(store: Store) -> str:
    """The key of a file that batch 0 has read."""
    return min(entry.key for entry in store.list("topics/clicks/partition=0/"))


def repaired(store: Store, identity: int) -> None:
    """Land the first file of partition 0 anew, with another identity in each record."""
    plan = there(Ledger(store, "clicked").plan(0))
    count = plan.stream("clicks").partitions[0].end
    keys = [click.key for click in _clicks() if click.key in _keys(store, 0)][:count]
    table = table_of([Click(key, identity, 0) for key in keys])
    land_file(table, "clicks", f"{store.root}/topics", 0, 0, offsets=list(range(len(keys))))


def _clicks() -> list[Click]:
    return [Click(f"key-{key}", key, 0) for key in range(10)]


def _keys(store: Store, partition: int) -> set[str]:
    return {f"key-{key}" for key in range(10) if placement_hash(f"key-{key}") % 2 == partition}


def at(store: Store) -> tuple[str, str]:
    """What COSET_STORE says, in words."""
    return "--store", store.root


def pages(file: str) -> tuple[str, str]:
    """What COSET_DOCS says, in words."""
    return "--docs", str(Path(file).parent / "docs")


def nexts(kind: Kind, *words: str) -> str:
    """The next steps that a command that fails names, with findings of one kind."""
    result = coset(*words, "--json")
    assert result.exit_code == 3, result.output
    findings = json.loads(result.stderr.splitlines()[-1])["findings"]
    assert {finding["kind"] for finding in findings} == {kind}
    return "\n".join(finding["next"] for finding in findings)


@pytest.mark.long
def test_a_backfill_that_fails_is_given_up_and_asked_for_again_and_the_live_batch_stays(
    store: Store, file: str
) -> None:
    landed(store, 2)
    succeeded("plan", file)
    key = first_file(store)
    repaired(store, 100)
    succeeded("backfill", file, "--from", "0", "--input", "repaired", "--preview")
    pipeline = load(file)
    request = actions.begin(pipeline, store, actions.Asked(0, 0, DEFAULTS, "", True))
    actions.planned(pipeline, store, request, 0)
    # The repair is repaired once more.
    repaired(store, 200)
    told = nexts(Kind.FILE_CHANGED, "backfill", file, "--resume", "0", *BESIDE)
    assert "replan" not in told
    assert "with `--input repaired`" in told
    (cancel,) = set(commands(told.replace(" with `--input repaired`", "")))
    assert cancel == ("backfill", file, "--cancel", "0", *at(store), "--wait-for-live", "0", *LOCAL, *pages(file))
    in_another_shell(*cancel)
    again = succeeded("backfill", file, "--from", "0", "--input", "repaired", *BESIDE)
    assert "backfill 1 of clicked" in again.output
    standing = Ledger(store, "clicked").standing()
    assert standing.open
    assert standing.plan is not None
    assert standing.plan.batch == 2
    assert store.get(key) is not None


@pytest.mark.long
def test_a_file_that_lands_in_a_gap_of_a_batch_is_read_by_a_backfill_with_repaired_input(
    store: Store, file: str
) -> None:
    sparse = Path(file).with_name("many.py")
    sparse.write_text(
        "import os\n"
        "from coset import Pipeline\n"
        'pipeline = Pipeline("counted", source=os.environ["CLICKS_SOURCE"])\n'
        'views = pipeline.stream("views", key="ad", partitions=1, offsets="sparse")\n'
        'views.aggregate("count(*) AS views").write("counted")\n'
    )
    land(store, FIRST)
    land(store, SECOND)
    succeeded("run", str(sparse), *LOCAL)
    land(store, [10, 11])
    told = nexts(Kind.PROOF, "backfill", str(sparse), "--from", "0", *LOCAL)
    assert "with `--input repaired`" in told
    cancel = ("backfill", str(sparse), "--cancel", "0", *at(store), *LOCAL, *pages(file))
    assert cancel in commands(told)
    in_another_shell(*cancel)
    succeeded("backfill", str(sparse), "--from", "0", "--input", "repaired", *LOCAL)


@pytest.mark.long
def test_files_that_are_gone_are_landed_again_and_the_backfill_reads_those_that_there_are(
    store: Store, file: str
) -> None:
    store.delete(first_file(store))
    told = nexts(Kind.FILE_GONE, "backfill", file, "--from", "0", "--to", "1", *LOCAL)
    assert "replan" not in told
    repaired(store, 100)
    (command,) = set(commands(told))
    assert command[:8] == ("backfill", file, "--from", "0", "--to", "1", "--input", "repaired")
    assert command[8:] == (*at(store), *LOCAL, *pages(file))
    in_another_shell(*command)


@pytest.mark.long
def test_a_column_that_no_batch_has_read_is_read_by_the_backfill_that_is_named(store: Store, file: str) -> None:
    clicks = table_of(_clicks()).append_column("price", pa.array(range(10), pa.int64()))
    land_table(clicks, "clicks", f"{store.root}/topics", key="k", partitions=2)
    written(Path(file), "sum(price) AS n", ", mode='replace'")
    told = nexts(Kind.SQL_COLUMN, "backfill", file, "--from", "1", *LOCAL)
    (asked,) = commands(told)
    assert asked == ("backfill", file, "--from", "1", "--input", "repaired", *at(store), *LOCAL, *pages(file))
    in_another_shell(*asked)


@pytest.mark.parametrize("again", [False, True])
def test_a_batch_that_waits_is_planned_anew_or_tried_again(again: bool, store: Store, file: str) -> None:
    expectation = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}
    written(Path(file), "count(*) AS n", f", expect=[{expectation}]")
    landed(store, 2)
    for _ in range(2):
        told = nexts(Kind.EXPECTATION, "run", file, *LOCAL)
        assert ("report", file, "--batch", "2", *at(store), *pages(file)) in commands(told)
    report = coset("report", file, "--batch", "2")
    assert "Result table counts, not met" in report.stdout
    waits = coset("run", file, *LOCAL, "--json")
    (finding,) = json.loads(waits.stderr.splitlines()[-1])["findings"]
    assert finding["kind"] == Kind.BATCH_WAITS
    assert finding["about"]["waits_for"] == "expectation"
    replan, run = commands(finding["next"])
    assert (replan[0], run) == ("replan", ("run", file, "--again", *at(store), *LOCAL, *pages(file)))
    if again:
        assert nexts(Kind.EXPECTATION, *run).replace(" --again", "") == told
    written(Path(file), "count(*) AS n")
    in_another_shell(*replan)
    succeeded("run", file, *LOCAL)


@pytest.mark.long
def test_a_backfill_that_was_paused_cancelled_or_put_in_place_says_how_to_go_on(store: Store, file: str) -> None:
    succeeded("backfill", file, "--from", "0", *LOCAL, "--scheme", "tasks(4)")
    (undo,) = commands(nexts(Kind.BACKFILL_TURN, "backfill", file, "--cancel", "0"))
    assert undo == ("undo", file, "0", *at(store), *pages(file))
    in_another_shell(*undo)
    (one,) = commands(nexts(Kind.BACKFILL_APPROVAL, "swap", file, "0", "--approve", "sha256:0"))
    assert "Rows of backfill 0" in in_another_shell(*one)
    request = actions.begin(load(file), store, actions.Asked(1, 1, DEFAULTS))
    actions.pause(store, backfill(store, "clicked", request.number), "later")
    with pytest.raises(Refused, match="paused it"):
        actions.planned(load(file), store, request, 1)
    (resume,) = commands(nexts(Kind.BACKFILL_UNREADY, "swap", file, "1", "--approve", "sha256:0"))
    assert resume == ("backfill", file, "--resume", "1", *at(store), *pages(file))
    in_another_shell(*resume, *LOCAL)
    succeeded("backfill", file, "--from", "1", "--scheme", "tasks(8)", "--preview")
    third = actions.begin(load(file), store, actions.Asked(1, 1, Settings.parse(scheme="tasks(8)")))
    succeeded("backfill", file, "--cancel", str(third.number))
    (another,) = commands(nexts(Kind.BACKFILL_HELD, "backfill", file, "--resume", str(third.number), *LOCAL))
    in_another_shell(*another)


def test_what_there_is_not_is_looked_up_by_the_command_that_is_named(file: str, store: Store) -> None:
    for kind, words in (
        (Kind.BATCH_UNKNOWN, ("explain", file, "--batch", "9")),
        (Kind.BACKFILL_UNKNOWN, ("backfills", file, "9")),
        (Kind.BATCH_UNPUBLISHED, ("state", file, "--batch", "9")),
        (Kind.BATCH_UNPUBLISHED, ("backfill", file, "--from", "9")),
    ):
        for command in commands(nexts(kind, *words)):
            in_another_shell(*command)
    (status,) = commands(nexts(Kind.BATCH_NONE_OPEN, "abandon", file, "--why", "it is wrong"))
    in_another_shell(*status)


def test_without_anything_to_do_the_last_plan_is_explained_and_drawn(file: str, tmp_path: Path) -> None:
    drawn = tmp_path / "plan.svg"
    shown = succeeded("explain", file, "--svg", str(drawn))
    assert "Nothing to do: no new records since batch 1" in shown.stdout
    assert "batch 1 is shown" in shown.stdout
    assert "<svg" in drawn.read_text()
