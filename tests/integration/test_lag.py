"""How far a pipeline is behind: in status and metrics, which the alert rules and the dashboard of the guide go by."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from coset.batches.ends import ends_after
from coset.batches.progress import Progress, progress
from coset.batches.watch import IncidentLog
from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.incident import Stopped, Trouble
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import NOTHING, Ends
from tests.landed import land_file
from tests.sparse import FIRST, counted, land, published

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "operating.md").read_text()
VIEWS = StreamPartition("views", 0)

_LABELS = r'\{([a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\}'
_LINE = re.compile(rf"# (TYPE|UNIT|HELP) (coset_[a-z_]+) (.+)|(coset_[a-z_]+){_LABELS} -?[0-9.]+(e[+-]?[0-9]+)?")


def coset(store: Store, tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counted', source='{store.root}/topics')\n"
        "views = pipeline.stream('views', key='ad', partitions=1, offsets='sparse')\n"
        "views.aggregate('count(*) AS views, sum(n)::BIGINT AS n').write('counted')\n"
    )
    return CliRunner().invoke(app, [words[0], str(file), "--store", store.root, *words[1:]])


def last(store: Store) -> Ends:
    ledger = Ledger(store, "counted")
    return ends_after(ledger, ledger.standing().published)


def behind(store: Store, made: Pipeline | None = None, later: float = 0) -> Progress:
    now = datetime.now(UTC) + timedelta(seconds=later)
    (one,) = progress(made or counted(store), last(store), now).partitions
    return one


def metric(text: str, name: str) -> float:
    (value,) = re.findall(rf"^{name}\{{.*\}} (.+)$", text, re.M)
    return float(value)


def test_lag_counts_the_records_that_wait_and_since_when(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    before = behind(store, later=100)
    assert (before.committed, before.latest, before.lag) == (None, 10, 5)
    assert before.lag_seconds is not None
    assert 99 <= before.lag_seconds < 160
    published(store, counted(store), tmp_path)
    assert behind(store, later=100) == Progress(VIEWS, 10, 10, 0, 0.0)
    land(store, [12, 15, 16])
    after = behind(store, later=1000)
    assert (after.committed, after.latest, after.lag) == (10, 17, 3)
    assert after.lag_seconds is not None
    assert 999 <= after.lag_seconds < 1060


def test_a_file_that_was_read_in_part_still_waits(store: Store, tmp_path: Path) -> None:
    land(store, [0, 1, 2, 3])
    made = counted(store, "dense")
    published(store, made, tmp_path, Settings(limit=1))
    assert behind(store, made).lag == 3
    assert (behind(store, made, later=50).lag_seconds or 0) >= 49


def test_a_table_lags_by_what_landed_since_it_was_read(store: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{store.root}/topics")
    made.table("views", key="ad", partitions=1).select("n").to_stream().write("counted")
    land(store, [0, 1])
    published(store, made, tmp_path)
    assert behind(store, made, later=100) == Progress(VIEWS, 2, 2, 0, 0.0)
    land(store, [2])
    assert behind(store, made).lag == 1


def test_where_it_is_not_known_how_far_records_have_landed_there_is_no_lag(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    published(store, counted(store), tmp_path)
    land(store, [500])
    made = progress(counted(store), last(store), datetime.now(UTC))
    assert made.wrong is None
    land(store, [12, 12])
    made = progress(counted(store), last(store), datetime.now(UTC))
    assert made.partitions == (Progress(VIEWS, 10),)
    assert (made.lag, made.lag_seconds) == (None, 0.0)
    assert made.wrong is not None


def test_status_shows_both(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    shown = coset(store, tmp_path, "status")
    assert re.search(r"views-0 +none yet +10 +5 +\d+ s", shown.stdout), shown.output
    assert re.search(r"Lag: 5 in 1 stream partitions, the oldest for \d+ s\.", shown.stdout)
    (one,) = json.loads(coset(store, tmp_path, "status", "--json").stdout)["partitions"]
    assert {name: one[name] for name in ("partition", "committed", "latest", "lag")} == {
        "partition": "views-0",
        "committed": None,
        "latest": 10,
        "lag": 5,
    }
    assert one["lag_seconds"] >= 0


def test_metrics_are_openmetrics_text(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    published(store, counted(store), tmp_path)
    land(store, [10, 12])
    shown = coset(store, tmp_path, "metrics")
    assert shown.exit_code == 0, shown.output
    *lines, end, nothing = shown.stdout.split("\n")
    assert (end, nothing) == ("# EOF", "")
    for line in lines:
        assert _LINE.fullmatch(line), line
    # What describes a metric comes before it, and all of a metric together.
    families = [re.findall(r"coset_[a-z_]+", line)[0] for line in lines]
    order = list(dict.fromkeys(families))
    assert families == sorted(families, key=order.index)
    assert {family for family in order if f"`{family}`" not in PAGE} == set()
    expected = {"committed_offset": 10, "latest_offset": 13, "lag_records": 2, "batch_open": 0, "published_batch": 0}
    assert {name: metric(shown.stdout, f"coset_{name}") for name in expected} == expected
    assert 'coset_lag_records{pipeline="counted",stream="views",partition="0"} 2' in lines


def test_metrics_say_where_what_is_not_read_any_more_stands(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    made = counted(store)
    made.stream("clicks", key="ad", partitions=1).write("clicked")
    land_file(pa.table({"ad": ["a", "b"]}), "clicks", f"{store.root}/topics", 0, 0)
    published(store, made, tmp_path)
    shown = coset(store, tmp_path, "metrics")
    assert shown.exit_code == 0, shown.output
    assert 'coset_unread_offset{pipeline="counted",stream="clicks",partition="0"} 2' in shown.stdout.split("\n")
    assert "`coset_unread_offset`" in PAGE


def test_metrics_of_what_is_wrong_say_so_and_what_is_known(store: Store, tmp_path: Path) -> None:
    land(store, FIRST)
    published(store, counted(store), tmp_path)
    land(store, [12, 12])
    shown = coset(store, tmp_path, "metrics")
    assert shown.exit_code == 3
    assert metric(shown.stdout, "coset_findings") == 1
    assert metric(shown.stdout, "coset_committed_offset") == 10
    assert "coset_lag_records{" not in shown.stdout
    assert "a duplicate" in shown.stderr


@pytest.mark.parametrize("words", [("metrics",), ("status", "--json")])
def test_before_anything_is_planned(store: Store, tmp_path: Path, words: tuple[str, ...]) -> None:
    land(store, FIRST)
    assert coset(store, tmp_path, *words).exit_code == 0


def test_a_bad_file_hides_the_lag_of_its_own_partition_only(store: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=3, hash="opaque").write("counted")
    made.stream("clicks", key="ad", partitions=1, hash="opaque").write("clicked")
    for partition in range(3):
        land_file(pa.table({"ad": ["a", "b"]}), "views", f"{store.root}/topics", partition, 0)
    land_file(pa.table({"ad": ["a"]}), "clicks", f"{store.root}/topics", 0, 0)
    store.put("topics/views/partition=1/views+1+0000000002.parquet", b"no Parquet")
    land_file(pa.table({"ad": ["a"]}), "views", f"{store.root}/topics", 2, 7)
    found = progress(made, NOTHING, datetime.now(UTC))
    assert {str(one.partition): one.lag for one in found.partitions} == {
        "views-0": 2,
        "views-1": None,
        "views-2": None,
        "clicks-0": 1,
    }
    assert found.wrong is not None
    assert found.lag is None


def test_a_file_that_may_be_of_any_partition_hides_the_lag_of_all(store: Store) -> None:
    made = Pipeline("counted", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=2, hash="opaque").write("counted")
    for partition in range(2):
        land_file(pa.table({"ad": ["a", "b"]}), "views", f"{store.root}/topics", partition, 0)
    store.put("topics/views/partition=1/views.parquet", b"whose?")
    assert [one.lag for one in progress(made, NOTHING, datetime.now(UTC)).partitions] == [None, None]


# ---- alert rules and the dashboard


FOLDER = Path(__file__).parents[2] / "docs" / "guide" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
(GROUP,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
RULES = GROUP["rules"]
_METRIC = re.compile(r"coset_[a-z_]+")


@pytest.fixture
def printed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Metric]:
    """What `coset metrics` prints in an environment, by name: of a published batch and of records that wait."""
    (tmp_path / "coset.toml").write_text("[environments.prod]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSET_ENV", "prod")
    land(store, FIRST)
    published(store, counted(store), tmp_path)
    land(store, [10, 12])
    IncidentLog(store, "counted").record(Stopped(Trouble(("proof",), "a key lies elsewhere", "", "look"), 1_000), None)
    shown = coset(store, tmp_path, "metrics")
    assert shown.exit_code == 0, shown.output
    return {metric.name: metric for metric in text_string_to_metric_families(shown.stdout)}


def expressions() -> list[str]:
    """All that the rules and the dashboard ask."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"]]
    return [*(rule["expr"] for rule in RULES), *panels, *variables]


def test_a_parser_of_openmetrics_reads_what_is_printed(printed: dict[str, Metric]) -> None:
    assert {metric.type for metric in printed.values()} == {"gauge"}
    (lag,) = printed["coset_lag_records"].samples
    assert (lag.labels, lag.value) == (
        {"environment": "prod", "pipeline": "counted", "stream": "views", "partition": "0"},
        2,
    )
    assert printed["coset_lag_seconds"].unit == "seconds"
    assert all(metric.documentation.endswith(".") for metric in printed.values())
    assert [each.value for each in printed["coset_batch_records"].samples] == [len(FIRST)]
    assert [each.value for each in printed["coset_batch_moved_records"].samples] == [0]
    assert {each.labels["severity"]: each.value for each in printed["coset_open_incidents"].samples} == {
        "error": 1,
        "warning": 0,
    }
    assert {each.labels["reason"]: each.value for each in printed["coset_batch_open_reason"].samples} == dict.fromkeys(
        ("not run", "failed", "waits for a decision", "not published"), 0
    )
    assert {
        each.labels["state"]: each.value for each in printed["coset_unfinished_backfills"].samples
    } == dict.fromkeys(("running", "paused", "compared"), 0)
    assert printed["coset_published_timestamp_seconds"].samples[0].value > 1e9
    assert [each.value for each in printed["coset_late"].samples] == [0]
    assert printed["coset_due_timestamp_seconds"].samples == []
    parts = {each.labels["part"] for each in printed["coset_batch_part_seconds"].samples}
    assert parts == {"plan", "audit", "check", "publish"}
    assert [each.value for each in printed["coset_batch_keys"].samples] == [5]


def test_rules_and_dashboard_name_only_metrics_and_labels_that_are_printed(printed: dict[str, Metric]) -> None:
    named = {name for text in expressions() for name in _METRIC.findall(text)}
    assert named <= set(printed)
    assert len(named) > 12
    known = {sample_label for metric in printed.values() for each in metric.samples for sample_label in each.labels}
    for rule in RULES:
        grouped = {name for names in re.findall(r"by \(([a-z, ]+)\)", rule["expr"]) for name in names.split(", ")}
        told = set(re.findall(r"\$labels\.([a-z]+)", " ".join(rule["annotations"].values())))
        assert told <= grouped <= known


def promtool(*words: str | Path) -> str:
    """What Prometheus' own tool says of a file of rules, which has to be in order."""
    tool = shutil.which("promtool")
    assert tool, "Tests of alert rules need Prometheus' own tool: apt-get install prometheus"
    done = subprocess.run([tool, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_reads_the_rules_and_all_that_the_dashboard_asks(tmp_path: Path) -> None:
    assert "6 rules found" in promtool("check", "rules", FOLDER / "alerts.yml")
    # What Grafana puts in their place.
    asked = [text.replace("$pipeline", "counted") for text in expressions() if not text.startswith("label_values(")]
    assert not any("$" in text for text in asked)
    rules = [{"record": f"asked:{number}", "expr": text} for number, text in enumerate(asked)]
    (file := tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_each_alert_is_raised_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    """One sample a minute. At its begin, time() is 0."""
    whole = 'environment="prod", pipeline="late"'
    pipeline, stream = f"{{{whole}}}", f'{{{whole}, stream="views", partition="0"}}'
    series = {
        f"coset_published_timestamp_seconds{pipeline}": "0x400",
        f"coset_late{pipeline}": "0x120 1x400",
        f"coset_lag_records{stream}": "5x400",
        f"coset_lag_seconds{stream}": "0+60x400",
        f"coset_findings{pipeline}": "0x9 1x400",
        f"coset_batch_open{pipeline}": "0x9 1x400",
        f"coset_doubtful_offsets{stream}": "_x9 7x400",
        f"coset_batch_seconds{pipeline}": "100x299 400x100",
    }
    raised = {
        "CosetNothingPublished": ("2h5m", "2h7m"),
        "CosetLag": ("2h5m", "2h7m"),
        "CosetFindings": ("14m", "16m"),
        "CosetBatchOpen": ("2h9m", "2h11m"),
        "CosetDoubtfulOffsets": ("8m", "9m"),
        "CosetBatchTimeUnusual": ("4h59m", "5h1m"),
    }
    assert set(raised) == {rule["alert"] for rule in RULES}
    told = [
        {"alertname": name, "eval_time": at, "exp_alerts": alerts}
        for name, (before, after) in raised.items()
        for at, alerts in ((before, []), (after, [_alert(name, after)]))
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": told}]
    asked = {"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    (file := tmp_path / "tests.yml").write_text(yaml.safe_dump(asked))
    assert "SUCCESS" in promtool("test", "rules", file)


def _alert(name: str, at: str) -> dict[str, Any]:
    (rule,) = [each for each in RULES if each["alert"] == name]
    values = {
        "$labels.environment": "prod",
        "$labels.pipeline": "late",
        "$labels.stream": "views",
        "$value | humanizeDuration": {"2h7m": "2h 7m 0s", "5h1m": "6m 40s"}.get(at, ""),
        "$value": "7",
    }

    def filled(text: str) -> str:
        return re.sub(r"{{ (.*?) }}", lambda found: values[found[1]], text)

    labels = (
        rule["labels"]
        | {"environment": "prod", "pipeline": "late"}
        | ({"stream": "views"} if "stream" in rule["expr"] else {})
    )
    return {"exp_labels": labels, "exp_annotations": {key: filled(text) for key, text in rule["annotations"].items()}}


def test_the_dashboard_has_what_grafana_asks_for_at_its_import() -> None:
    assert DASHBOARD["id"] is None
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 36
    inputs = {f"${{{each['name']}}}" for each in DASHBOARD["__inputs"] if each["pluginId"] == "prometheus"}
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} | {
        target["datasource"]["uid"] for panel in panels for target in panel["targets"]
    } == inputs
    assert {panel["type"] for panel in panels} <= {each["id"] for each in DASHBOARD["__requires"]}
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
