"""The `coset` command on a real store: each command's answer, and each refusal with its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from coset.batches.runners.spark_server import SparkServer
from coset.cli.output import show
from partitioning.documents.document import canonical, digest_of, encode, pack, plain, unpack
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.explain.explain import explain
from partitioning.model.plan import Plan
from partitioning.model.verdict import Verdict
from partitioning.version import VERSION
from tests import small
from tests.commands import PIPELINE, SLOW, coset, landed, refused, succeeded
from tests.examples import few
from tests.goldens import expect_golden
from tests.landed import land_table
from tests.plans import plan_of, tails, tails_found
from tests.small import until, working
from tests.there import there

__all__ = ["landed"]

UNREACHABLE = "http://127.0.0.1:1"


def nothing_published(store: Store) -> bool:
    return not list(store.list("delays/verdicts/")) and not list(store.list("tables/"))


def test_a_plan_reads_as_the_golden_file(capsys: pytest.CaptureFixture[str]) -> None:
    show(*explain(plan_of(tails(), tails_found()), None))
    expect_golden("cli_explain_first.txt", capsys.readouterr().out)


def test_explain_shows_the_next_plan_and_stores_nothing(landed: Store) -> None:
    result = succeeded("explain", PIPELINE)
    assert "Batch 0 would be planned: 120 records in 2 task groups." in result.stdout
    assert "gcd(4, 2) = 2" in result.stdout
    assert not list(landed.list("delays/"))


def test_plan_stores_what_explain_showed(landed: Store) -> None:
    shown = json.loads(coset("explain", PIPELINE, "--json").stdout)
    made = json.loads(coset("plan", PIPELINE, "--json").stdout)
    assert made["digest"] == shown["digest"]
    assert (shown["uri"], made["uri"]) == (None, f"{landed.root}/delays/plans/0.json.gz")
    stored = there(Ledger(landed, "delays").plan(0))
    assert made["plan"] == json.loads(json.dumps(plain(stored)))


def test_explain_of_an_open_batch_and_of_that_batch_show_the_stored_plan(landed: Store) -> None:
    made = json.loads(coset("plan", PIPELINE, "--scheme", "tasks(3)", "--json").stdout)
    for words in ((), ("--batch", "0")):
        shown = json.loads(coset("explain", PIPELINE, *words, "--json").stdout)
        assert (shown["plan"], shown["uri"]) == (made["plan"], made["uri"])


def test_the_scheme_the_groups_and_the_limit_are_used(landed: Store) -> None:
    words = ("--scheme", "elastic(2)", "--groups", "3", "--limit", "5")
    plan = json.loads(coset("plan", PIPELINE, *words, "--json").stdout)["plan"]
    assert [stage["scheme"] for stage in plan["stages"]] == [{"kind": "elastic", "number": 2}]
    assert len(plan["groups"]) == 3
    assert [part["end"] for part in plan["streams"][0]["partitions"]] == [5] * 4


def test_status_tells_nothing_committed_from_zero(landed: Store) -> None:
    result = succeeded("status", PIPELINE)
    assert "No batch was planned yet." in result.stdout
    partitions = json.loads(coset("status", PIPELINE, "--json").stdout)["partitions"]
    assert len(partitions) == 6
    assert {each["committed"] for each in partitions} == {None}
    assert sum(each["lag"] for each in partitions) == 120


def test_status_tells_an_unknown_end_from_zero(landed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYS_SOURCE", f"{landed.root}/elsewhere")
    result = coset("status", PIPELINE)
    assert result.exit_code == 3
    assert result.stdout.count("unknown") == 6 * 2 + 1
    assert "no such stream 'flights'" in result.stderr
    document = json.loads(coset("status", PIPELINE, "--json").stdout)
    assert {each["latest"] for each in document["partitions"]} == {None}
    assert len(document["findings"]) == 2


def test_status_says_what_an_open_batch_needs(landed: Store) -> None:
    coset("plan", PIPELINE)
    newest = json.loads(coset("status", PIPELINE, "--json").stdout)["newest"]
    assert newest == {"batch": 0, "open": True, "needs": ["Still to run: 2 of 2 task groups (0, 1)."]}
    assert f"Next: coset run {PIPELINE}" in coset("status", PIPELINE).stdout


def test_an_abandoned_batch_gives_its_records_to_the_next(landed: Store) -> None:
    coset("plan", PIPELINE)
    result = succeeded("abandon", PIPELINE, "--why", "the wrong groups")
    assert result.stdout == "Batch 0 is abandoned (the wrong groups); the next plan takes its records\n"
    plan = json.loads(coset("plan", PIPELINE, "--json").stdout)["plan"]
    assert (plan["batch"], [part["start"] for part in plan["streams"][0]["partitions"]]) == (1, [0] * 4)
    report = json.loads(coset("report", PIPELINE, "--batch", "0", "--json").stdout)
    assert report["outcome"] == "given up"
    assert coset("report", PIPELINE, "--batch", "0").stdout.startswith("## delays, batch 0: – given up\n")
    assert coset("report", PIPELINE).stdout.startswith("## delays, batch 1: … not run\n")
    (row,) = json.loads(landed.get("delays/docs/index.json") or b"")
    assert (row["batch"], row["outcome"], row["summary"]) == (0, "given up", "the wrong groups")
    taken = report["verdict"].pop("taken")
    assert report["verdict"] == {"decision": "abandon", "attempt": 0, "why": "the wrong groups"}
    assert datetime.now(UTC) - datetime.fromisoformat(taken["at"]) < timedelta(minutes=5)
    assert taken["by"]
    assert (report["ran"], report["tables"]) == (None, None)


@pytest.mark.long
def test_a_batch_that_fails_twice_waits_is_planned_anew_and_what_it_left_is_removed(
    landed: Store, tmp_path: Path
) -> None:
    keyless = pa.table({"tailnum": pa.array([None], pa.string()), "delay": pa.array([1], pa.int64())})
    land_table(keyless, "flights", f"{landed.root}/topics", key="tailnum", partitions=4)
    words = ("run", PIPELINE, "--runner", "local", "--docs", str(tmp_path))
    for _ in range(2):
        refused(coset(*words), "refuses records without one", f"`coset replan {PIPELINE} --why '…' --")
    refused(
        coset(*words), "the batch waits, its checks failed twice in the same way", f"`coset run {PIPELINE} --again --"
    )
    assert coset("report", PIPELINE).stdout.startswith("## delays, batch 0: ✗ failed\n")
    second = (tmp_path / "delays" / "batch-0-attempt-1.html").read_text()
    assert "This is failure 2 in a row; the first attempt began 20" in second
    status = coset("status", PIPELINE).stdout
    assert "It waits: the checks of its last two attempts failed in the same way." in status
    assert f"Next: correct it, then `coset replan {PIPELINE} --why '…' --store " in status
    refused(coset(*words, "--again"), "refuses records without one")
    assert Ledger(landed, "delays").attempt(0) == 3
    nothing = coset("clean", PIPELINE)
    assert nothing.stdout.startswith("Nothing to remove: there are 0 files")
    assert "batch 0 is open and left alone" in nothing.stdout
    replanned = succeeded("replan", PIPELINE, "--why", "a flight has no plane")
    abandoned, sentence, then = replanned.stdout.splitlines()
    assert abandoned == "Batch 0 is abandoned (a flight has no plane)"
    assert sentence == "Batch 1 is planned: 121 records in 2 task groups"
    assert then == f"Next: coset run {PIPELINE} --store {landed.root}"
    there = json.loads(coset("clean", PIPELINE, "--dry-run", "--json").stdout)
    assert not there["removed"]
    removed = json.loads(coset("clean", PIPELINE, "--json").stdout)
    assert removed == there | {"removed": True}
    assert removed["files"]
    assert all(landed.head(file["uri"].removeprefix(f"{landed.root}/")) is None for file in removed["files"])


def test_run_publishes_batch_after_batch_and_then_has_nothing_to_do(landed: Store, tmp_path: Path) -> None:
    words = ("--runner", "local", "--docs", str(tmp_path))
    first = succeeded("run", PIPELINE, *words, "--limit", "15")
    assert "# delays, batch 0" in first.stdout
    for name in ("plan", "run group 0", "run group 1", "audit", "check", "publish"):
        assert f"\nok     {name}" in f"\n{first.stderr}"
    assert (tmp_path / "delays" / "index.html").exists()
    rest = json.loads(coset("run", PIPELINE, *words, "--all", "--json").stdout)
    assert [one["batch"] for one in rest["batches"]] == [1]
    assert rest["batches"][0]["verdict"]["decision"] == "publish"
    _check_times(rest["batches"][0], tmp_path)
    assert rest["sentence"] == "Nothing to do: no new records since batch 1 (all 100 landed records are committed)"
    again = coset("run", PIPELINE, *words)
    assert (again.exit_code, again.stdout) == (0, rest["sentence"] + "\n")
    status = json.loads(coset("status", PIPELINE, "--json").stdout)
    assert {each["lag"] for each in status["partitions"]} == {0}
    assert json.loads(coset("report", PIPELINE, "--json").stdout) == rest["batches"][0]
    assert rest["batches"][0]["outcome"] == "proved"
    _check_pages_to_send(tmp_path)
    assert json.loads(coset("plan", PIPELINE, "--json").stdout)["plan"] is None


def _check_pages_to_send(docs: Path) -> None:
    """What a week's report says, and the pages that stand alone."""
    week = coset("report", PIPELINE, "--since", "1w", "--html", str(docs / "week.html")).stdout
    assert "delays: 2 attempts in the last 1w, 2 proved" in week
    assert week.count("✓ proved") == 2
    rows = json.loads(coset("report", PIPELINE, "--since", "12h", "--json").stdout)
    assert [(row["batch"], row["outcome"], row["records"]) for row in rows] == [(1, "proved", 60), (0, "proved", 80)]
    assert f"Written: {docs / 'one.html'}\n" in coset("report", PIPELINE, "--html", str(docs / "one.html")).stdout
    for name, shown in (("week", "✓ proved"), ("one", "delays: batch 1")):
        page = (docs / f"{name}.html").read_text()
        assert shown in page
        assert "href=" not in page
    refused(coset("report", PIPELINE, "--since", "yesterday"), "'yesterday' is no time to look back", "12h, 7d, 2w")
    refused(
        coset("report", PIPELINE, "--html", str(docs / "no" / "a.html")), "the page cannot be written", "name a file"
    )


def _check_times(outcome: dict[str, Any], docs: Path) -> None:
    """What just ran says when, how long and with how much CPU, in every form."""
    ran, taken = outcome["ran"], outcome["verdict"]["taken"]
    began, ended, decided = map(datetime.fromisoformat, (ran["began"], ran["ended"], taken["at"]))
    assert datetime.now(UTC) - timedelta(minutes=5) < began < ended < decided < datetime.now(UTC)
    assert ran["seconds"] == pytest.approx((ended - began).total_seconds())
    assert 0 < ran["cpu_seconds"] < 300
    page = coset("report", PIPELINE).stdout
    at = f"{began:%Y-%m-%d %H:%M:%S} UTC, {ran['seconds']:,.1f} s"
    assert f"- Its task groups ran {at}, {ran['cpu_seconds']:,.1f} s of CPU" in page
    assert f", {decided:%Y-%m-%d %H:%M:%S} UTC\n" in page
    assert re.search(r"^- Rows before - gone \+ come = after: 1 result table: [\d,]+ rows - 0 \+ [\d,]+ = ", page, re.M)
    for name in ("index.html", "batch-1-attempt-0.html"):
        assert f"{began:%Y-%m-%d %H:%M:%S} UTC" in (docs / "delays" / name).read_text()
    told = coset("metrics", PIPELINE).stdout.splitlines()
    figures = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in told if line.startswith("coset_")}
    assert figures["coset_published_timestamp_seconds"] == pytest.approx(decided.timestamp())
    assert figures["coset_batch_seconds"] == ran["seconds"]
    assert figures["coset_batch_cpu_seconds"] == ran["cpu_seconds"]


@pytest.mark.long
@pytest.mark.parametrize("master", few(["server", "local[2]"]))
def test_of_spark_nothing_is_seen(master: str, landed: Store, spark_server: SparkServer, tmp_path: Path) -> None:
    given = os.environ | (spark_server.environment if master == "server" else {"SPARK_MASTER": master})
    command = [sys.executable, "-m", "coset.cli.main", "run", PIPELINE, "--docs", str(tmp_path)]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## delays, batch 0: ✓ proved\n")
    said = [line for line in done.stderr.splitlines() if not line.startswith("       group ")]
    assert sorted(line[:20].rstrip() for line in said) == sorted(
        f"ok     {name}" for name in ("plan", "run group 0", "run group 1", "audit", "check", "publish")
    )


def test_a_crash_in_c_code_says_where_it_was(tmp_path: Path) -> None:
    crashing = tmp_path / "crashing.py"
    crashing.write_text("import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    command = [sys.executable, "-m", "coset.cli.main", "explain", str(crashing), "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert f'File "{crashing}", line 4' in done.stderr


@pytest.mark.parametrize(
    ("runner", "told"),
    few(
        [
            ("local", signal.SIGINT),
            ("connect", signal.SIGTERM),
            ("spark", signal.SIGINT),
            ("spark-submit", signal.SIGTERM),
        ],
        2,
    ),
)
def test_a_run_that_is_told_to_end_ends_what_it_started(
    runner: str, told: signal.Signals, store: Store, spark_server: SparkServer
) -> None:
    given = {"SLOW_SOURCE": small.land(), **(spark_server.environment if runner == "connect" else {})}
    command = [sys.executable, "-m", "coset.cli.main", "run", SLOW, "--store", store.root, "--runner", runner]
    with subprocess.Popen(
        command, env=os.environ | given, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stderr is not None
        assert any(line.startswith("ok     plan") for line in run.stderr)
        assert until(lambda: working(spark_server.process.pid if runner == "connect" else run.pid))
        started = psutil.Process(run.pid).children(recursive=True)
        # Ctrl-C reaches all that the terminal knows, SIGTERM the command alone.
        (os.killpg if told is signal.SIGINT else os.kill)(run.pid, told)
        said = run.communicate(timeout=30)[1]
    assert run.returncode in (130, 128 + signal.SIGTERM)
    assert "Traceback" not in said
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert not list(store.list("slow/receipts/"))
    if runner == "connect":
        assert until(lambda: not working(spark_server.process.pid), within=10)


@pytest.mark.parametrize("command", ["plan", "explain", "run", "status", "report"])
@pytest.mark.usefixtures("s3")
def test_a_store_that_cannot_be_reached_is_named(command: str, landed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", UNREACHABLE)
    refused(coset(command, PIPELINE), f"the store at {UNREACHABLE} cannot be reached", code=6)


@pytest.mark.parametrize("command", ["plan", "run", "status"])
@pytest.mark.usefixtures("s3")
def test_wrong_credentials_are_named(command: str, landed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused(coset(command, PIPELINE), "the store denies access", "check AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_a_missing_bucket_is_named(command: str, landed: Store) -> None:
    refused(coset(command, PIPELINE, "--store", "s3://nowhere/x"), "there is no bucket 'nowhere'", "s3://nowhere/x")


@pytest.mark.parametrize("command", ["plan", "explain", "run"])
def test_a_missing_stream_is_named(command: str, landed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYS_SOURCE", f"{landed.root}/elsewhere")
    refused(coset(command, PIPELINE), "Refused: 2 findings", "no such stream 'flights'", "no such stream 'planes'")
    assert nothing_published(landed)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--scheme", "spread"), "unknown scheme 'spread'"),
        (("--scheme", "tasks(0)"), "asks for 0 tasks"),
        (("--scheme", "max"), "scheme max keeps no keys together"),
        (("--groups", "0"), "0 is too small\n  where: groups"),
        (("--limit", "0"), "0 is too small\n  where: limit"),
    ],
)
def test_what_cannot_be_planned_is_refused_and_nothing_is_stored(
    words: Sequence[str], what: str, landed: Store
) -> None:
    for command in ("plan", "explain", "run"):
        refused(coset(command, PIPELINE, *words), what)
    assert not list(landed.list("delays/"))


def test_a_corrupt_plan_is_refused(landed: Store) -> None:
    coset("plan", PIPELINE)
    data = there(landed.get("delays/plans/0.json.gz"))
    landed.put("delays/plans/0.json.gz", pack(unpack(data, "here").replace(b'"batch":0', b'"batch":9', 1)))
    for command in ("plan", "explain", "run", "status", "report"):
        refused(coset(command, PIPELINE), "has digest sha256:", f"{landed.root}/delays/plans/0.json.gz")
    assert nothing_published(landed)


def test_a_plan_of_a_newer_version_is_refused_and_nothing_is_changed(landed: Store) -> None:
    written = json.loads(encode(plan_of(tails(), tails_found()))) | {"format": "coset.plan/9", "planner": "9.0.0"}
    del written["digest"]
    landed.put("delays/plans/0.json.gz", pack(canonical(written | {"digest": digest_of(canonical(written))})))
    before = {entry.key: entry.etag for entry in landed.list("")}
    what = f"the document is coset.plan/9, and this Coset, {VERSION}, reads up to {Plan.FORMAT}"
    then = "use Coset 9.0.0, or a newer one; nothing was changed"
    for words in (["plan"], ["explain"], ["run"], ["status"], ["report"], ["replan", "--why", "so"], ["clean"]):
        refused(coset(words[0], PIPELINE, *words[1:]), what, then)
    refused(coset("abandon", PIPELINE, "--why", "so"), what, then)
    assert {entry.key: entry.etag for entry in landed.list("")} == before


def test_a_verdict_of_a_newer_version_is_refused_and_nothing_is_changed(landed: Store) -> None:
    coset("plan", PIPELINE)
    written = {"format": "coset.verdict/9", "why": "who knows"}
    landed.put("delays/verdicts/0.json", canonical(written | {"digest": digest_of(canonical(written))}))
    before = {entry.key: entry.etag for entry in landed.list("")}
    for command in ("plan", "run", "status", "report"):
        refused(coset(command, PIPELINE), f"this Coset, {VERSION}, reads up to {Verdict.FORMAT}", "nothing was changed")
    assert {entry.key: entry.etag for entry in landed.list("")} == before


def test_the_command_says_its_version() -> None:
    said = coset("--version")
    assert (said.exit_code, said.stdout, said.stderr) == (0, f"coset {VERSION}\n", "")


def test_a_batch_that_there_is_not_is_refused(landed: Store) -> None:
    refused(coset("explain", PIPELINE, "--batch", "7"), "there is no batch 7 of delays", f"coset status {PIPELINE}")
    refused(coset("report", PIPELINE, "--batch", "7"), "there is no batch 7 of delays")
    refused(coset("report", PIPELINE), "delays has no batch yet")
    refused(coset("abandon", PIPELINE, "--why", "so"), "no batch is open")
    refused(coset("abandon", PIPELINE, "--why", " "), "the reason is empty")


def test_with_json_a_refusal_is_json(landed: Store) -> None:
    result = coset("plan", PIPELINE, "--scheme", "spread", "--json")
    assert result.exit_code == 3
    document = json.loads(result.stderr)
    assert document["error"] == "Refused"
    assert [set(finding) for finding in document["findings"]] == [{"kind", "what", "where", "next", "who", "about"}]


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("import partitioning\n\n1 / 0\n", "ZeroDivisionError: division by zero", ":3"),
        ("pipeline = (\n", "SyntaxError", ":1"),
        ("from asyncio import CancelledError\n\nraise CancelledError\n", "CancelledError", ":3"),
        ("import nothing_like_it\n", "No module named 'nothing_like_it'", ":1"),
        ("other = 1\n", "the file defines no `pipeline`", "file.py"),
    ],
)
def test_a_pipeline_file_that_fails_is_named_with_the_line(text: str, what: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(text)
    refused(coset("plan", str(path), "--store", "s3://test/x"), what, line)


def test_a_pipeline_that_there_is_not_is_refused_with_the_names_there_are() -> None:
    refused(coset("plan", "tails", "--store", "s3://test/x"), "there is no pipeline 'tails'", "tail_activity")


def test_the_name_of_a_pipeline_is_enough_from_any_folder(s3: object, store: Store, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coset.cli.main", "status", "tail_activity", "--store", store.root, "--json"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["pipeline"] == "tail_activity", done.stderr


def test_a_warning_is_told_by_the_check_and_by_the_report(landed: Store, tmp_path: Path) -> None:
    rule = '{"type": "expect_column_values_to_be_null", "kwargs": {"column": "tailnum"}, "severity": "warning"}'
    file = tmp_path / "warned.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('warned', source={f'{landed.root}/topics'!r})\n"
        "flights = pipeline.stream('flights', key='tailnum', partitions=4)\n"
        f"flights.select('delay', name='kept').write('kept', expect=({rule},))\n"
    )
    done = succeeded("run", str(file), "--runner", "local", "--docs", str(tmp_path))
    assert "; warning: Result table kept, not met: tailnum values must be null." in done.stderr
    assert "- Warning: Result table kept, not met: tailnum values must be null." in done.stdout
    (warning,) = json.loads(coset("report", str(file), "--json").stdout)["warnings"]
    assert warning.startswith("Result table kept, not met: tailnum values must be null.\n    - ")
    assert 'coset_batch_warnings{pipeline="warned"} 1\n' in coset("metrics", str(file)).stdout
