"""The alert rules and the dashboard that the guide offers go by metrics that `coset metrics` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from coset.cli.main import app
from partitioning.documents.store import Store
from tests.sparse import FIRST, counted, land, published

FOLDER = Path(__file__).parents[2] / "docs" / "guide" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
(GROUP,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
RULES = GROUP["rules"]
_METRIC = re.compile(r"coset_[a-z_]+")
_DURATION = re.compile(r"[0-9]+(ms|[smhdwy])")


@pytest.fixture
def printed(store: Store, tmp_path: Path) -> dict[str, Metric]:
    """What `coset metrics` prints, by name: of a published batch and of records that wait."""
    land(store, FIRST)
    published(store, counted(store), tmp_path)
    land(store, [10, 12])
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counted', source='{store.root}/topics')\n"
        "views = pipeline.stream('views', key='ad', partitions=1, offsets='sparse')\n"
        "views.aggregate('count(*) AS views, sum(n)::BIGINT AS n').write('counted')\n"
    )
    shown = CliRunner().invoke(app, ["metrics", str(file), "--store", store.root])
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
    assert (lag.labels, lag.value) == ({"pipeline": "counted", "stream": "views", "partition": "0"}, 2)
    assert printed["coset_lag_seconds"].unit == "seconds"
    assert printed["coset_published_timestamp_seconds"].samples[0].value > 1e9


def test_rules_and_dashboard_name_only_metrics_that_are_printed(printed: dict[str, Metric]) -> None:
    named = {name for text in expressions() for name in _METRIC.findall(text)}
    assert named <= set(printed)
    assert len(named) > 12


def test_labels_by_which_the_rules_group_are_those_of_their_metrics(printed: dict[str, Metric]) -> None:
    known = {sample_label for metric in printed.values() for each in metric.samples for sample_label in each.labels}
    for rule in RULES:
        grouped = {name for names in re.findall(r"by \(([a-z, ]+)\)", rule["expr"]) for name in names.split(", ")}
        told = set(re.findall(r"\$labels\.([a-z]+)", " ".join(rule["annotations"].values())))
        assert told <= grouped <= known


def test_rules_have_the_structure_that_prometheus_reads() -> None:
    assert set(GROUP) == {"name", "rules"}
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 6
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert _DURATION.fullmatch(rule.get("for", "5m"))
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


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
