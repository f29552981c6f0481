"""Offsets that are missing: files that retention removed, and gaps as compacted topics leave them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from coset.batches import steps
from coset.batches.backfills import actions as again
from coset.batches.backfills.outlook import gaps
from coset.batches.ends import known_after
from coset.batches.interpreter import silently
from coset.batches.planning import preview
from coset.batches.progress import progress
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.main import app
from coset.cli.metrics import metrics
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from partitioning.model.verdict import Judged
from partitioning.values import replace
from tests.batches import erase, rows
from tests.begun import Begun
from tests.judged import EXPLAINED, refusal
from tests.real_batches import ran
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish
from tests.sparse import FIRST, SECOND, counted, land, planned, published
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
    assert [str(loss) for loss in plan.losses] == ["views-0@[4,12)"]
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
    assert planned(lost, counted(lost, "dense"), LOST).losses == ()
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
    assert (str(plan.ranges()[0]), plan.records, [str(loss) for loss in plan.losses]) == (
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
    assert (plan.records, [str(loss) for loss in plan.losses]) == (4, ["views-0@[4,300)"])


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
    assert BatchRef.of(lost, plan).load()[1].losses == plan.losses


@pytest.fixture
def landed(store: Store) -> Store:
    land(store, FIRST)
    land(store, SECOND)
    return store


def test_records_are_counted_as_the_files_say_and_gaps_are_reported(landed: Store, tmp_path: Path) -> None:
    ref = published(landed, counted(landed), tmp_path)
    _, plan = ref.load()
    assert (plan.records, plan.streams[0].partitions[0].missing) == (9, 12)
    assert [file.records for file in plan.streams[0].partitions[0].files] == [5, 4]
    assert {(key, n) for key, _, n, *_ in rows(landed.root, "counted")} == {
        (f"N{offset}", offset) for offset in FIRST + SECOND
    }
    report = steps.report(ref, tmp_path)
    assert "12 offsets of the ranges have no record." in report
    assert "| views-0@[0,10)  | 5       | views+0+0000000000.parquet | the file itself holds no more |" in report
    assert "| views-0@[10,12) | 2       | between two files          | as few as markers leave       |" in report
    assert "9 records in 1 stream partition" in report
    assert "Missing offsets" in steps.plan_page(ref)
    land(landed, [23, 24])
    again = published(landed, counted(landed), tmp_path)
    assert str(again.load()[1].ranges()[0]) == "views-0@[21,25)"
    assert again.load()[1].records == 2


def test_what_is_not_declared_sparse_is_refused_and_told_how_to_declare_it(landed: Store) -> None:
    with pytest.raises(Refused) as refused:
        preview(counted(landed, "dense"), landed)
    said = [(finding.what, finding.then) for finding in refused.value.findings]
    assert "views: 5 records have the offsets [0,10): a gap" in said[0][0]
    assert said[0][1].endswith('if its topic is compacted or transactional, declare offsets="sparse"')
    assert said[-1][0] == "views: gap: no file holds views-0@[10,12)"
    assert 'declare offsets="sparse(2)"' in said[-1][1]


def test_a_hole_that_is_larger_than_declared_is_refused_with_its_range(landed: Store) -> None:
    finding = finding_of(preview, counted(landed, "sparse(1)"), landed)
    assert finding.what == "views: gap: no file holds views-0@[10,12)"
    assert 'declare offsets="sparse(2)"' in finding.then
    assert planned(landed, counted(landed, "sparse(2)")).records == 9


def test_a_hole_after_what_is_committed_is_refused_if_it_is_larger_than_declared(landed: Store, tmp_path: Path) -> None:
    published(landed, counted(landed), tmp_path)
    land(landed, [122, 123])
    with pytest.raises(Refused, match=r"views-0@\[21,122\)|\[21,122\) is lost"):
        preview(counted(landed), landed)
    assert str(planned(landed, counted(landed, "sparse(101)")).ranges()[0]) == "views-0@[21,124)"


@pytest.mark.parametrize("offsets", [[0, 1, 1], [0, 2, 1, 1]])
def test_a_file_with_more_records_than_offsets_is_a_duplicate_all_the_same(store: Store, offsets: list[int]) -> None:
    land(store, offsets)
    with pytest.raises(Refused, match="a duplicate"):
        preview(counted(store), store)


def test_a_limit_takes_whole_files(landed: Store, tmp_path: Path) -> None:
    land(landed, [21, 22, 23])
    for limit, end, records in ((1, 10, 5), (5, 10, 5), (8, 10, 5), (9, 21, 9), (10, 22, 10), (11, 23, 11)):
        plan = planned(landed, counted(landed), Settings(limit=limit))
        assert (plan.ranges()[0].end, plan.records) == (end, records), limit
    published(landed, counted(landed), tmp_path, Settings(limit=9))
    assert planned(landed, counted(landed)).records == 3


def test_a_start_within_a_file_with_gaps_is_refused(landed: Store) -> None:
    with pytest.raises(Refused, match=r"offset 4 is within a file of 5 records with the offsets \[0,10\)"):
        preview(counted(landed), landed, Settings(starts={"views-0": 4}))
    assert planned(landed, counted(landed), Settings(starts={"views-0": 10})).records == 4


def test_a_compacted_table_is_read_whole(landed: Store, tmp_path: Path) -> None:
    made = Pipeline("latest", source=f"{landed.root}/topics")
    made.table("views", key="ad", partitions=1, offsets="sparse").select("n").to_stream().write("latest")
    land(landed, [30, 40], ["N0", "N1"])
    _, plan = published(landed, made, tmp_path).load()
    assert plan.records == 11
    assert {row[:2] for row in rows(landed.root, "latest")} == {
        *((f"N{offset}", offset) for offset in (*FIRST[2:], *SECOND)),
        ("N0", 30),
        ("N1", 40),
    }


def test_ranges_of_a_sparse_partition_are_dealt_to_tasks_and_add_up(landed: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{landed.root}/topics")
    parts = made.stream("views", key="ad", partitions=1, offsets="sparse").partial("count(*) AS views", by="ad")
    parts.combine("sum(views)::BIGINT AS views", name="totals").write("counted")
    ref = published(landed, made, tmp_path, Settings.parse(scheme=f"{parts.step}=records(4)"))
    _, plan = ref.load()
    assert len([task for stage in plan.stages for task in stage.tasks if task.span]) == 6
    assert len(rows(landed.root, "counted")) == 9


def test_records_of_a_sparse_stream_are_spread_as_by_their_keys(store: Store, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    kept = {0: 0, 1: 0}
    for partition in (0, 1):
        keys = [key for key in map(str, range(400)) if placement_hash(key) % 2 == partition]
        offsets = sorted(random.choice(1000, len(keys), replace=False).tolist())
        for first in range(0, len(keys), 50):
            land(store, offsets[first : first + 50], keys[first : first + 50], partition)
        kept[partition] = len(keys)
    made = counted(store, partitions=2)
    ref = published(store, made, tmp_path, Settings.parse(scheme="tasks(4)"))
    assert ref.load()[1].records == sum(kept.values()) == len(rows(store.root, "counted"))


LOST_AMONG_GAPS = [list(range(first, first + 10)) for first in (0, 10, 30)]


def test_a_lost_file_of_a_stream_without_other_gaps_is_refused(store: Store) -> None:
    for offsets in LOST_AMONG_GAPS:
        land(store, offsets)
    finding = finding_of(preview, counted(store), store)
    assert finding.what == "views: gap: no file holds views-0@[20,30)"
    assert 'declare offsets="sparse(10)"' in finding.then


def test_a_burst_of_compaction_beside_nearly_dense_files_is_refused_until_it_is_declared_or_accepted(
    store: Store,
) -> None:
    # Of 100 offsets three are missing; then 40 in a row, as where the same keys came again and again.
    land(store, [offset for offset in range(100) if offset not in {13, 50, 51}])
    land(store, list(range(140, 240)))
    finding = finding_of(preview, counted(store), store)
    assert finding.what == "views: gap: no file holds views-0@[100,140)"
    (declared,) = re.findall(r'declare offsets="([^"]+)"', finding.then)
    (lost,) = re.findall(r"--accept-loss '([^']+)'", finding.then)
    assert planned(store, counted(store, declared)).records == 197
    plan = preview(counted(store), store, Settings.parse(accept_loss=[lost])).plan
    assert plan is not None
    assert (plan.records, [str(loss) for loss in plan.losses]) == (197, ["views-0@[100,140)"])


def test_a_lost_file_of_a_stream_that_declares_as_much_is_a_warning_wherever_it_is_told(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for offsets in LOST_AMONG_GAPS:
        land(store, offsets)
    made = counted(store, "sparse(10)")
    ref = published(store, made, tmp_path)
    warning = "10 offsets missing, which neither markers nor compaction explain"
    assert warning in steps.plan_page(ref)
    assert warning in steps.report(ref, tmp_path)
    assert any(warning in page.read_text() for page in tmp_path.rglob("*.html"))
    standing = Ledger(store, made.name).standing()
    now = progress(made, known_after(Ledger(store, made.name), standing.published).ends, datetime.now(UTC))
    told = list(metrics(made.name, standing, now, [], None))
    assert 'coset_doubtful_offsets{pipeline="counted",stream="views",partition="0"} 10' in told
