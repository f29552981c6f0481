"""Files that retention removed: of what was read it is normal, of what was not it is a loss that somebody accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coset.batches import steps
from coset.batches.backfills import actions as again
from coset.batches.backfills.outlook import gaps
from coset.batches.interpreter import silently
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.main import app
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan
from partitioning.model.verdict import Judged
from partitioning.values import replace
from tests.batches import erase, rows
from tests.begun import Begun
from tests.judged import EXPLAINED, refusal
from tests.real_batches import ran
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish
from tests.sparse import counted, land, planned, published
from tests.there import there

LOST = Settings.parse(accept_loss=["views-0@[4,12)"])


@pytest.fixture
def read(begun: Begun) -> Store:
    return begun.by(four_records)


def four_records(store: Store) -> None:
    """A published batch of four records of partition 0, and a file of them."""
    land(store, [0, 1, 2, 3])
    run_and_publish(next_batch(counted(store, "dense"), store.root))


def expire(store: Store, *firsts: int) -> None:
    erase(store.root, *(f"topics/views/partition=0/views+0+{first:010}.parquet" for first in firsts))


def refused(store: Store, offsets: str = "dense", settings: Settings = DEFAULTS) -> Finding:
    return finding_of(preview, counted(store, offsets), store, settings)


@pytest.fixture
def lost(read: Store) -> Store:
    """The same, after files that were read and files that were not have expired."""
    land(read, list(range(12, 16)))
    expire(read, 0)
    return read


def test_files_that_were_read_may_expire(read: Store) -> None:
    land(read, [4, 5])
    expire(read, 0)
    assert str(planned(read, counted(read, "dense")).ranges()[0]) == "views-0@[4,6)"


def test_files_that_expired_unread_are_a_loss_that_is_refused_with_its_range(lost: Store) -> None:
    finding = refused(lost)
    assert finding.what == "offsets start at 12, but only those before 4 are committed: [4,12) is lost"
    assert finding.where == f"views-0 in {lost.root}/topics"
    assert finding.then == (
        "restore the landed files of that range; `--accept-loss 'views-0@[4,12)'` of `coset plan`, `run` and `replan` "
        "goes on without them, and records the loss"
    )


def test_a_loss_that_is_accepted_is_in_the_plan_the_verdict_and_the_report(lost: Store, tmp_path: Path) -> None:
    ref = published(lost, counted(lost, "dense"), tmp_path, LOST)
    ledger, plan = ref.load()
    assert [str(loss) for loss in plan.lost] == ["views-0@[4,12)"]
    assert (str(plan.ranges()[0]), plan.records) == ("views-0@[4,16)", 4)
    verdict = there(ledger.verdict(plan.batch))
    assert isinstance(verdict.why, Judged)
    assert verdict.why.lost == 8
    report = steps.report(ref, tmp_path)
    assert "| views-0@[4,12) | 8       | between two files | accepted as lost |" in report
    assert "8 offsets accepted as lost" in report
    assert len(rows(lost.root, "counted")) == 8
    (gap,) = gaps(ledger)
    assert (str(gap.range), gap.why) == ("views-0@[4,12)", "they were gone when batch 1 was planned")
    backfill = again.begin(counted(lost, "dense"), lost, again.Asked(1, 1, Settings.parse(scheme="tasks(2)")))
    with Local(processes=1) as runner:
        again.run(counted(lost, "dense"), lost, backfill, runner, tmp_path, silently)
    assert str(again.comparison(lost, backfill)) == "identical: 4 rows of 1 batch"
    # The next batch neither needs it nor minds it.
    land(lost, [16])
    assert planned(lost, counted(lost, "dense"), LOST).lost == ()
    assert str(planned(lost, counted(lost, "dense")).ranges()[0]) == "views-0@[16,17)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("views-0@[4,11)", "[4,12) is lost"),
        ("views-1@[4,12)", "views-1 is no partition of a stream"),
        ("views-0@[13,14)", "views-0@[13,14) is accepted as lost, but it is not: views-0@[4,12) is missing there"),
        ("4-12", "'4-12' is no range of offsets"),
    ],
)
def test_a_loss_that_is_not_the_one_is_refused(lost: Store, text: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        preview(counted(lost, "dense"), lost, Settings.parse(accept_loss=[text]))
    assert any(said in finding.what for finding in caught.value.findings)


def test_nothing_is_accepted_where_nothing_is_lost(read: Store) -> None:
    land(read, [4, 5])
    finding = refused(read, settings=Settings.parse(accept_loss=["views-0@[4,5)"]))
    assert finding.what == "views-0@[4,5) is accepted as lost, but it is not: no offset is missing there"


def test_a_gap_between_unread_files_can_be_accepted_too(read: Store, tmp_path: Path) -> None:
    land(read, [4, 5])
    land(read, [9])
    assert "gap: no file holds views-0@[6,9)" in refused(read).what
    settings = Settings.parse(accept_loss=["views-0@[6,9)"])
    _, plan = published(read, counted(read, "dense"), tmp_path, settings).load()
    assert (str(plan.ranges()[0]), plan.records, [str(loss) for loss in plan.lost]) == (
        "views-0@[4,10)",
        3,
        ["views-0@[6,9)"],
    )


def test_a_limit_counts_records_where_offsets_are_lost(lost: Store, tmp_path: Path) -> None:
    settings = replace(LOST, limit=3)
    _, plan = published(lost, counted(lost, "dense"), tmp_path, settings).load()
    assert (str(plan.ranges()[0]), plan.records) == ("views-0@[4,15)", 3)


def test_a_sparse_stream_loses_files_as_others_do(read: Store, tmp_path: Path) -> None:
    land(read, list(range(300, 304)))
    assert "[4,300) is lost" in refused(read, "sparse").what
    settings = Settings.parse(accept_loss=["views-0@[4,300)"])
    _, plan = published(read, counted(read, "sparse"), tmp_path, settings).load()
    assert (plan.records, [str(loss) for loss in plan.lost]) == (4, ["views-0@[4,300)"])


def test_a_plan_that_gives_up_what_nobody_accepted_is_refused(lost: Store) -> None:
    def unaccepted(plan: Plan) -> Plan:
        return replace(plan, losses=())

    said = refusal(ran(lost, counted(lost, "dense"), unaccepted, LOST))
    assert said.failed == (EXPLAINED,)
    assert "views-0: 8 offsets are missing and nothing says why, the first in views-0@[4,12)" in said.findings[0]


def coset(store: Store, tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counted', source='{store.root}/topics')\n"
        "views = pipeline.stream('views', key='ad', partitions=1)\n"
        "views.aggregate('count(*) AS views, sum(n)::BIGINT AS n').write('counted')\n"
    )
    return CliRunner().invoke(app, [words[0], str(file), "--store", store.root, *words[1:]])


def test_on_the_command_line(lost: Store, tmp_path: Path) -> None:
    shown = coset(lost, tmp_path, "plan")
    assert shown.exit_code == 3
    assert "--accept-loss 'views-0@[4,12)'" in shown.stderr
    shown = coset(lost, tmp_path, "plan", "--accept-loss", "views-0@[4,12)", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["plan"]["losses"] == [
        {"partition": {"stream": "views", "partition": 0}, "start": 4, "end": 12}
    ]
    plan = there(Ledger(lost, "counted").plan(1))
    assert BatchRef.of(lost, plan).load()[1].lost == plan.lost
