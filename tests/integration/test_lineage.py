"""What a catalogue is told of real runs, by OpenLineage's own client."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]
from referencing import Registry, Resource

from coset import expect
from coset.batches.ref import BatchRef
from coset.lineage.events import AttemptRun
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.verdict import Outcome
from tests import forked
from tests.clicked import landed
from tests.there import there
from tests.told import Recorder, recording

FACET = Path(__file__).parents[2] / "coset" / "lineage" / "offsets_run_facet.json"
SPECIFIED = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema))
    for path in (FACET, *(Path(__file__).parents[1] / "vectors" / "openlineage").glob("*.json"))
    for schema in [json.loads(path.read_text())]
)
BETWEEN = "expect_column_values_to_be_between"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a folder, to which clicks have come, and a pipeline whose checks pass."""
    root = f"file://{tmp_path}/store"
    for name, value in {"COSET_STORE": root, "COSET_DOCS": str(tmp_path / "docs")}.items():
        monkeypatch.setenv(name, value)
    landed(store_at(root), 0)
    written(tmp_path, root, 1_000)
    return root


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A server that takes events."""
    with recording() as recorder:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{recorder.port}")
        yield recorder


def written(folder: Path, root: str, most: int, **more: str) -> None:
    expected = [{"type": BETWEEN, "kwargs": {"column": "n", "max_value": most}, **more}]
    (folder / "clicked.py").write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('clicked', source='{root}/topics')\n"
        "clicks = pipeline.stream('clicks', key='k', partitions=2)\n"
        f"clicks.aggregate('count(*) AS n', name='counts').write('counts', expect={expected})\n"
    )


def coset(folder: Path, word: str, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.coset(word, str(folder / "clicked.py"), *words)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return coset(folder, "run", "--runner", "local", *words)


def wrong(event: dict[str, Any]) -> Iterator[str]:
    """What the specification's own schemas find in an event, and in each of its facets by the schema that it names."""
    parts = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    facets = [
        each for part in parts for kind, held in part.items() if kind.endswith(("acets",)) for each in held.values()
    ]
    for told, schema in [(event, event["schemaURL"]), *((facet, facet["_schemaURL"]) for facet in facets)]:
        asked = Draft202012Validator({"$ref": schema}, registry=SPECIFIED, format_checker=FormatChecker())
        yield from (f"{error.json_path}: {error.message}" for error in asked.iter_errors(told))


def told(recorder: Recorder, namespace: str = "coset") -> list[dict[str, Any]]:
    """The events that came, each with the schema that it names."""
    events: list[Any] = recorder.messages
    for event in events:
        assert list(wrong(event)) == []
        assert event["schemaURL"].endswith("/OpenLineage.json#/$defs/RunEvent")
        assert (event["job"]["namespace"], event["job"]["name"]) == (namespace, "clicked")
    return events


def outcome(event: dict[str, Any]) -> str:
    """The word for what became of the attempt."""
    (found,) = [value for key, value in tags(event) if key == "outcome"]
    return found


def tags(event: dict[str, Any]) -> list[tuple[str, str]]:
    """What Coset says of the run in a word."""
    return [(tag["key"], tag["value"]) for tag in event["run"]["facets"]["tags"]["tags"] if tag["source"] == "COSET"]


def test_a_published_batch_is_told_by_its_start_and_its_end(root: str, recorder: Recorder, tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    start, end = told(recorder)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (outcome(start), outcome(end)) == (Outcome.UNRUN, Outcome.PROVED)
    assert start["run"]["runId"] == end["run"]["runId"]
    (read,), (output,) = end["inputs"], end["outputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/store/topics/clicks")
    assert (output["namespace"], output["name"]) == ("file", f"{tmp_path}/store/tables/counts")
    assert output["facets"]["version"]["datasetVersion"] == "1"
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["k", "n"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 10
    fields = output["facets"]["columnLineage"]["fields"]
    (made_of,) = fields["k"]["inputFields"]
    assert (made_of["namespace"], made_of["name"], made_of["field"]) == ("file", read["name"], "k")
    assert fields["n"] == {"inputFields": []}
    (asserted,) = output["outputFacets"]["dataQualityAssertions"]["assertions"]
    assert (asserted["assertion"], asserted["success"], asserted["column"]) == (BETWEEN, True, "n")
    assert asserted["actual"] == "0"
    tests = end["run"]["facets"]["test"]
    assert tests["_schemaURL"].endswith("/1-0-1/TestRunFacet.json#/$defs/TestRunFacet")
    assert {(test["status"], test["severity"]) for test in tests["tests"]} == {("pass", "error")}
    assert f"Result table counts: {BETWEEN}" in {test["name"] for test in tests["tests"]}


def test_the_offsets_of_a_run_are_as_their_schema_says(root: str, recorder: Recorder, tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    facet = told(recorder)[0]["run"]["facets"]["coset_offsets"]
    ledger = Ledger(store_at(root), "clicked")
    plan = there(ledger.plan(0))
    assert (facet["batch"], facet["plan"]) == (0, BatchRef.of(ledger.store, plan).digest)
    assert [(each["partition"], each["from"], each["to"]) for each in facet["partitions"]] == [
        (each.partition.partition, each.start, each.end) for each in plan.ranges()
    ]
    assert sum(each["to"] - each["from"] for each in facet["partitions"]) == 10
    assert facet["_schemaURL"] == f"{json.loads(FACET.read_text())['$id']}#/$defs/CosetOffsetsRunFacet"


def test_a_pipeline_is_another_job_in_each_environment_though_its_plans_are_the_same(
    root: str, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coset.toml").write_text("[environments.prod]\n")
    planned = forked.coset("plan", "clicked.py", folder=tmp_path, environment={**os.environ, "COSET_ENV": "prod"})
    assert planned.returncode == 0, planned.stderr
    (start,) = told(recorder, "coset.prod")
    assert tags(start) == [("outcome", "not run"), ("environment", "prod")]
    plan = there(Ledger(store_at(root), "clicked").plan(0))
    runs = [str(AttemptRun(plan, 0, "", "", name).run) for name in ("prod", "dev", "")]
    assert (runs[0], len(set(runs))) == (start["run"]["runId"], 3)
    assert AttemptRun(plan, 0, "", "shop", "prod").namespace == "shop"


def test_an_event_that_is_not_as_specified_would_be_found(root: str, recorder: Recorder, tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    event = told(recorder)[-1]
    offsets, (output,) = event["run"]["facets"]["coset_offsets"], event["outputs"]
    offsets["partitions"] = [{"stream": "clicks"}]
    output["outputFacets"]["outputStatistics"]["rowCount"] = "ten"
    output["facets"]["columnLineage"]["fields"]["n"] = {"inputFields": [{"field": "k"}]}
    del event["eventTime"]
    found = "\n".join(wrong(event))
    for part in (
        "'eventTime' is a required",
        "'partition' is a required",
        "'ten' is not of type",
        "'namespace' is a req",
    ):
        assert part in found


def test_each_failed_attempt_is_a_run_of_its_own_and_so_is_the_one_that_is_given_up(
    root: str, recorder: Recorder, tmp_path: Path
) -> None:
    written(tmp_path, root, 0)
    assert [run(tmp_path).returncode for _ in range(2)] == [3, 3]
    assert coset(tmp_path, "abandon", "--why", "to see").returncode == 0
    events = told(recorder)
    assert [event["eventType"] for event in events] == ["START", "FAIL", "START", "FAIL", "ABORT"]
    assert [outcome(event) for event in events[1::2]] == [Outcome.FAILED] * 2
    assert outcome(events[-1]) == Outcome.GIVEN_UP
    runs = [event["run"]["runId"] for event in events]
    assert (runs[0], runs[2]) == (runs[1], runs[3])
    assert len(set(runs)) == 3
    failed = events[1]["run"]["facets"]
    unmet = [test for test in failed["test"]["tests"] if test["status"] != "pass"]
    assert [(test["type"], test["status"], test["actual"]) for test in unmet] == [(BETWEEN, "fail", "10")]
    assert "Result table counts, not met" in failed["errorMessage"]["message"]
    (asserted,) = events[1]["outputs"][0]["outputFacets"]["dataQualityAssertions"]["assertions"]
    assert asserted["success"] is False
    assert "version" not in events[1]["outputs"][0]["facets"]
    assert "to see" in events[4]["run"]["facets"]["errorMessage"]["message"]


def test_a_warning_is_a_test_that_failed_in_a_run_that_is_complete(
    root: str, recorder: Recorder, tmp_path: Path
) -> None:
    written(tmp_path, root, 0, severity="warning")
    done = run(tmp_path)
    assert (done.returncode, "could not be told" in done.stderr) == (0, False), done.stderr
    end = told(recorder)[-1]
    assert end["eventType"] == "COMPLETE"
    (unmet,) = [test for test in end["run"]["facets"]["test"]["tests"] if test["status"] != "pass"]
    assert (unmet["type"], unmet["status"], unmet["severity"], unmet["actual"]) == (BETWEEN, "fail", "warn", "10")
    (asserted,) = end["outputs"][0]["outputFacets"]["dataQualityAssertions"]["assertions"]
    assert (asserted["success"], asserted["severity"]) == (False, "warn")


def test_what_could_not_be_judged_is_skipped_with_its_reason(root: str, recorder: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "clicked.py"
    file.write_text(file.read_text().replace("'column': 'n'", "'column': 'gone'"))
    assert run(tmp_path).returncode == Outcome.UNJUDGED.exit_code
    tests = told(recorder)[-1]["run"]["facets"]["test"]["tests"]
    (skipped,) = [test for test in tests if test["status"] == "skip"]
    assert outcome(told(recorder)[-1]) == Outcome.UNJUDGED
    assert (skipped["type"], skipped["severity"]) == (BETWEEN, "error")
    assert "gone" in skipped["params"]["reason"]
    assert "actual" not in skipped
    assert "dataQualityAssertions" not in told(recorder)[-1]["outputs"][0].get("outputFacets", {})


def test_what_goes_by_more_batches_than_there_are_is_skipped_and_not_passed(
    root: str, recorder: Recorder, tmp_path: Path
) -> None:
    usual = f"expect=[{expect.rows_as_usual()}, {expect.few_nulls('n', at_most=0.5)}])"
    file = tmp_path / "clicked.py"
    file.write_text(re.sub(r"expect=\[.*\]\)", usual, file.read_text()))
    assert run(tmp_path).returncode == 0
    end = told(recorder)[-1]
    of_table = [test for test in end["run"]["facets"]["test"]["tests"] if "figures" in test["name"]]
    assert [(test["type"], test["status"]) for test in of_table] == [
        ("expect_rows_as_usual", "skip"),
        ("expect_few_nulls", "pass"),
    ]
    assert of_table[0]["params"]["reason"] == "it needs 5 batches, and has 0"
    (asserted,) = end["outputs"][0]["outputFacets"]["dataQualityAssertions"]["assertions"]
    assert asserted["assertion"] == "expect_few_nulls"


def test_a_catalogue_that_takes_nothing_changes_nothing_of_a_run(root: str, recorder: Recorder, tmp_path: Path) -> None:
    recorder.answer = 400
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is published" in done.stderr
    said = [line for line in done.stderr.splitlines() if "OpenLineage" in line or "Traceback" in line]
    assert said == ["Lineage of batch 0 of clicked: OpenLineage could not be told: HTTPError"] * 2


def test_without_a_configuration_nothing_is_sent_and_nothing_imported(
    root: str, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert run(tmp_path).returncode == 0
    assert recorder.messages == []
    script = "import sys; from coset.batches import steps, interpreter; print('openlineage' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"
