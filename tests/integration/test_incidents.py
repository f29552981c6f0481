"""Incidents of real runs, of which people are told, and the journal that batches leave for reports."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import Result

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.watch import IncidentLog, Watch, addresses
from coset.reports.overview import rows_of
from coset.reports.site import Row, listed
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, Unjudged
from partitioning.kinds import Kind
from partitioning.model.incident import Passed, Severity, Stopped, Trouble, WatchedRuns
from partitioning.model.journal import Part
from tests import forked
from tests.clicked import landed
from tests.commands import coset, succeeded
from tests.goldens import expect_golden
from tests.landed import land_table
from tests.running import next_batch, run_and_publish
from tests.told import SECRET, Recorder, die_before_telling, failing, recording

LOCAL = ("--runner", "local")
AT = 1_795_514_400_000
NOT_MET = [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}]


@pytest.fixture
def file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose checks fail, and clicks for a batch."""
    monkeypatch.setenv("CLICKS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    monkeypatch.setenv("COSET_DOCS_URL", "https://lake.example.org/coset/")
    file = tmp_path / "clicked.py"
    written(file, f", expect={NOT_MET}")
    landed(store, 0)
    return file


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A server that is told."""
    with recording() as recorder:
        monkeypatch.setenv("COSET_NOTIFY", recorder.address)
        yield recorder


def written(file: Path, more: str = "") -> None:
    file.write_text(
        "import os\n"
        "from coset import Pipeline\n"
        'pipeline = Pipeline("clicked", source=os.environ["CLICKS_SOURCE"], owner="ana@example.org")\n'
        'clicks = pipeline.stream("clicks", key="k", partitions=2)\n'
        f'clicks.aggregate("count(*) AS n", name="counts").write("counts"{more})\n'
    )


def run(file: Path, code: int) -> Result:
    result = coset("run", str(file), *LOCAL)
    assert result.exit_code == code, result.output
    assert SECRET not in result.output
    return result


def no_secret_is_stored(store: Store, docs: Path) -> None:
    stored = [store.get(entry.key) or b"" for entry in store.list("clicked/")]
    pages = [page.read_bytes() for page in docs.rglob("*") if page.is_file()]
    assert not any(SECRET.encode() in data for data in (*stored, *pages))


def test_a_warning_is_told_once_and_ends_with_the_batch_that_is_without_it(
    store: Store, file: Path, recorder: Recorder
) -> None:
    warning = f", expect={[{**NOT_MET[0], 'severity': 'warning'}]}"
    written(file, warning)
    run(file, 0)
    (opened,) = recorder.messages
    assert opened["type"] == "warning"
    assert opened["title"].startswith("Coset, clicked warning: Result table counts, not met: n values must be less")
    assert "Batch: 0" in opened["message"]
    assert "Page: https://lake.example.org/coset/clicked/docs/batch-0-attempt-0.html" in opened["message"]
    run(file, 0)  # nothing to do
    landed(store, 1)
    run(file, 0)
    assert len(recorder.messages) == 1
    (incident,) = IncidentLog(store, "clicked").latest().open
    assert (incident.severity, incident.failures, incident.batch) == (Severity.WARNING, 2, 1)
    written(file)
    landed(store, 2)
    run(file, 0)
    _, ended = recorder.messages
    assert "It has ended: batch 2 is published." in ended["message"]


def test_three_failures_of_one_cause_and_the_batch_that_ends_them_are_two_messages(
    store: Store, file: Path, recorder: Recorder, tmp_path: Path
) -> None:
    first = run(file, 3)
    assert "Incident 0 is open: told by 1 channel of 1" in first.stderr
    for _ in range(2):
        assert "Incident" not in run(file, 3).stderr
    assert recorder.titles == [
        "Coset, clicked failed: Result table counts, not met: n values must be less than or equal to 0."
    ]
    (shown,) = json.loads(coset("incidents", str(file), "--json").stdout)
    assert (shown["failures"], shown["batch"], shown["kinds"]) == (3, 0, ["expectation"])
    said = recorder.messages[0]["message"]
    for part in ("  where: ", "  next:  ", "Owner: ana@example.org", "Batch: 0", "Since: ", f"coset report {file}"):
        assert part in said
    assert "Page: https://lake.example.org/coset/clicked/docs/batch-0-attempt-0.html" in said
    assert store.head("clicked/docs/batch-0-attempt-0.html") is not None
    written(file)
    succeeded("replan", str(file), "--why", "more may come")
    assert "Incident 0 has ended: told by 1 channel of 1" in run(file, 0).stderr
    run(file, 0)
    assert [title.partition(":")[0] for title in recorder.titles] == [
        "Coset, clicked failed",
        "Coset, clicked works again",
    ]
    assert recorder.messages[1]["message"].startswith("It has ended: batch 1 is published.\n")
    assert [message["type"] for message in recorder.messages] == ["failure", "success"]
    assert coset("incidents", str(file)).stdout == "clicked: nothing is open.\n"
    no_secret_is_stored(store, tmp_path / "docs")


def test_input_that_cannot_be_read_is_told_and_its_end_too_though_nothing_is_new(
    store: Store, file: Path, recorder: Recorder
) -> None:
    written(file)
    run(file, 0)
    store.put("topics/clicks/partition=7/clicks+7+0000000000.parquet", b"PAR1")
    for _ in range(2):
        run(file, 3)
    store.delete("topics/clicks/partition=7/clicks+7+0000000000.parquet")
    assert "Nothing to do" in run(file, 0).stdout
    assert [title.partition(":")[0] for title in recorder.titles] == [
        "Coset, clicked failed",
        "Coset, clicked works again",
    ]
    assert recorder.messages[1]["message"].startswith("It has ended: nothing is wrong any more.\n")


@pytest.mark.long
def test_a_process_that_is_killed_between_writing_and_telling_leaves_it_to_the_next(
    file: Path, recorder: Recorder
) -> None:
    killed = forked.coset("run", str(file), *LOCAL, environment=os.environ, first=die_before_telling)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert recorder.messages == []
    assert "clicked: 1 is open" in coset("incidents", str(file)).stdout
    run(file, 3)
    assert len(recorder.messages) == 1
    assert "Since: " in recorder.messages[0]["message"]
    assert "2 failures" in recorder.messages[0]["message"]
    run(file, 3)
    assert len(recorder.messages) == 1


def test_a_run_keeps_its_result_if_nobody_can_be_told_and_the_next_tells(file: Path, recorder: Recorder) -> None:
    recorder.answer = 500
    first = forked.coset("run", str(file), *LOCAL)
    assert first.returncode == 3
    assert "Incident 0 is open: json could not be told: the address did not take the message" in first.stderr
    assert "Incident 0 is open: nobody could be told; the next run tries again" in first.stderr
    recorder.answer = 200
    second = forked.coset("run", str(file), *LOCAL)
    assert second.returncode == 3
    assert "Incident 0 is open: told by 1 channel of 1" in second.stderr
    assert ["2 failures" in message["message"] for message in recorder.messages] == [True]


@pytest.mark.parametrize("address", ["nonsense://0a1b2c3d-secret", "0a1b2c3d-secret", "mailto://0a1b2c3d-secret"])
def test_an_address_that_is_wrong_is_not_shown(address: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_NOTIFY", address)
    assert "could not be told: " in run(file, 3).stderr


def test_incidents_that_cannot_be_written_change_nothing_of_the_run(
    store: Store, file: Path, recorder: Recorder
) -> None:
    store.put("clicked/incidents/0.json", b"{}")
    said = run(file, 3).stderr
    assert "Incidents of clicked: nobody could be told: the document has no format and digest" in said
    assert recorder.messages == []
    written(file)
    succeeded("replan", str(file), "--why", "more may come")
    assert "nobody could be told" in run(file, 0).stderr


@pytest.mark.long
def test_of_processes_that_fail_at_once_one_tells_and_each_failure_counts(store: Store) -> None:
    told = forked.at_once(4, partial(failing, store.root, 5))
    assert sorted(told) == [0, 0, 0, 1]
    now = IncidentLog(store, "late").latest()
    assert ([each.failures for each in now.open], now.due) == ([20], ())


def test_an_error_that_nobody_foresaw_is_told_by_its_name_and_goes_on(store: Store, recorder: Recorder) -> None:
    said = list[str]()
    channels = (*addresses(f"{recorder.address}\nnonsense://{SECRET}"),)
    watch = Watch("late", "ana", store.root, channels, Shown(), said.append)
    with pytest.raises(ZeroDivisionError, match="0a1b2c3d"), watch.over():
        raise ZeroDivisionError(SECRET)
    watch.failed(None)
    assert recorder.titles == [
        "Coset, late failed: the run ended with ZeroDivisionError; its log says more",
        "Coset, late failed: the run ended from outside; its log says more",
    ]
    assert said[:2] == [
        "Incident 0 is open: nonsense could not be told: Apprise does not know this kind of address",
        "Incident 0 is open: told by 1 channel of 2",
    ]
    assert SECRET not in str((recorder.messages, said))
    for _ in range(2):
        watch.passed(published=False)
    assert recorder.titles[2:] == [title.replace("failed", "works again") for title in recorder.titles[:2]]


def test_where_nobody_is_named_no_incident_begins(store: Store, file: Path) -> None:
    assert "ncident" not in run(file, 3).stderr
    assert list(store.list("clicked/incidents")) == []


def test_open_incidents_and_those_that_were_read_as_the_golden_file(tmp_path: Path, file: Path) -> None:
    store = store_at(str(tmp_path / "store"))
    log = IncidentLog(store, "clicked")

    def failed(kind: Kind, what: str, at: int, batch: int | None, severity: Severity = Severity.ERROR) -> None:
        trouble = Trouble.of([Finding(kind, what, "s3://landing", "correct it")])
        log.record(Stopped(trouble, AT + at, "ana@example.org", batch, severity=severity), None)

    failed(Kind.STREAM_LOST, "offsets [4, 9) of clicks-0 are gone", 0, None)
    log.record(Passed(AT + 60_000, 3), None)
    for minute in (120_000, 180_000):
        failed(Kind.PROOF, "a key lies elsewhere\n    - key 'N78'", minute, 4)
    failed(Kind.STORE_UNREACHABLE, "the store does not answer", 240_000, None)
    backfills = IncidentLog(store, "clicked", WatchedRuns.BACKFILLS)
    trouble = Trouble.of([Finding(Kind.BACKFILL_UNEQUAL, "another scheme gave another result", "batch 1", "report it")])
    backfills.record(Stopped(trouble, AT + 300_000), None)
    said = [coset("incidents", str(file), "--store", store.root, *more).stdout for more in ([], ["--all"])]
    expect_golden("cli_incidents.txt", "\n".join(said))
    empty = coset("incidents", str(file), "--store", str(tmp_path / "none"), "--all")
    assert empty.stdout == "clicked: nothing is open, and nothing was.\n"


TABLE = pa.table({"tailnum": [f"N{number}" for number in range(40)], "delay": list(range(40))})


def pipeline(store: Store, *expect: dict[str, Any]) -> Pipeline:
    made = Pipeline("delays", source=f"{store.root}/topics")
    flights = made.stream("flights", key="tailnum", partitions=4)
    flights.aggregate("count(*) AS flights, max(delay) AS delay", name="tails").write("delays", expect=expect)
    return made


def land(store: Store) -> None:
    land_table(TABLE, "flights", f"{store.root}/topics", key="tailnum", partitions=4)


def planned(store: Store, made: Pipeline) -> BatchRef:
    return next_batch(made, store.root)


def newest(store: Store) -> Row:
    return listed(store, "delays", "index")[0]


def test_each_part_of_a_batch_is_in_its_journal_and_on_its_page(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    run_and_publish(ref, tmp_path)
    ledger = Ledger(store, "delays")
    made = ledger.journal_entry(0, Part.PLAN)
    assert made is not None
    assert made.plan == ref.digest
    assert made.lag is not None
    assert (made.lag.records, made.lag.most_in.startswith("flights-")) == (40, True)
    parts = [
        ledger.journal_entry(0, part, attempt)
        for part, attempt in ((Part.AUDIT, 0), (Part.CHECK, 0), (Part.PUBLISH, None))
    ]
    ended = [made.at.ended, *(part.at.ended for part in parts if part)]
    assert len(ended) == len(Part)
    assert ended == sorted(ended)

    row = newest(store)
    assert row["versions"] == {"delays": 1}
    assert row["lag_records"] == 40
    assert row["tables"] == {"delays": {"rows": 40, "row_bytes": row["row_bytes"]}}
    assert {f"{part}_seconds" for part in Part} <= set(row)
    page = (tmp_path / "delays" / "batch-0-attempt-0.html").read_text()
    assert re.search(r"Published 20[0-9-]+ [0-9:]+ UTC: delays at version 1\.", page)
    assert "40 records were in no published batch; furthest behind was flights-" in page
    assert page == (store.get("delays/docs/batch-0-attempt-0.html") or b"").decode()
    assert rows_of(store, ["delays"])[0]["open"] is None


def test_whoever_comes_later_does_not_change_when_a_part_was_done(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    run_and_publish(ref, tmp_path)
    ledger, row = Ledger(store, "delays"), newest(store)
    before = ledger.journal_entry(0, Part.PUBLISH)
    assert steps.publish(ref, tmp_path) == "Batch 0 is published: delays at version 1"
    assert ledger.journal_entry(0, Part.PUBLISH) == before
    assert newest(store) == row


def test_a_journal_that_is_gone_changes_no_more_than_the_pages(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    for entry in list(store.list("delays/journal/")):
        store.delete(entry.key)
    run_and_publish(ref, tmp_path)
    assert "lag_records" not in newest(store)
    assert newest(store)["versions"] == {"delays": 1}


def test_the_overview_says_why_an_open_batch_waits_until_it_is_given_up(store: Store, tmp_path: Path) -> None:
    land(store)
    rule: dict[str, Any] = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "delay", "max_value": 38},
    }
    made = pipeline(store, rule)
    whys = []
    for _ in range(2):
        with pytest.raises(Refused):
            run_and_publish(planned(store, made), tmp_path)
        whys.append(rows_of(store, ["delays"])[0]["open"]["waits"])
    assert whys[0] == "attempt 0 failed; the next run makes another"
    assert whys[1].startswith("it waits for a decision")
    assert f"{whys[1]}." in (store.get("docs/index.html") or b"").decode()
    steps.abandon(made, store.root, "the input was wrong")
    (row,) = rows_of(store, ["delays"])
    assert (row["open"], row["newest"]["outcome"]) == (None, "given up")


def test_a_batch_that_could_not_be_judged_has_an_exit_code_of_its_own(store: Store, tmp_path: Path) -> None:
    land(store)
    lacking: dict[str, Any] = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "gone", "max_value": 3},
    }
    with pytest.raises(Unjudged) as unjudged:
        run_and_publish(planned(store, pipeline(store, lacking)), tmp_path)
    assert unjudged.value.exit_code == 7
    page = (tmp_path / "delays" / "batch-0-attempt-0.html").read_text()
    assert "? could not be judged." in page
