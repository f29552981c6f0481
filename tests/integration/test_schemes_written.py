"""`coset schemes --write`: what is proposed goes into a settings file, and the next batch is planned by it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset import Settings
from coset.cli.main import app
from partitioning.documents.store import Store
from tests.landed import land_table

PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")
STAGE = "flights+planes"


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
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


def coset(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result


def test_what_is_proposed_is_planned_by_the_file_that_is_written(landed: Store, tmp_path: Path) -> None:
    file = str(tmp_path / "settings.toml")
    words = ("schemes", PIPELINE, "--target-bytes", "2000", "--write", file)
    (proposed,) = json.loads(coset(*words, "--json").stdout)["stages"]
    assert proposed["tasks"] > 2
    said = coset(*words).stdout
    again = f"coset run {PIPELINE} --settings {file} --store {landed.root}"
    assert f"Written to {file}: `{again}` plans by what is proposed" in said
    plan = json.loads(coset("plan", PIPELINE, "--settings", file, "--json").stdout)["plan"]
    (stage,) = plan["stages"]
    assert (stage["name"], stage["cosets"], stage["given"]) == (STAGE, proposed["tasks"], True)


def test_the_other_settings_stay_as_they_are(landed: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('limit = 7\ngrouper = "round-robin"\n[steps.totals]\nscheme = "tasks(2)"\n')
    words = ("--settings", str(tmp_path / "mine.toml"), "--target-bytes", "2000", "--write", str(tmp_path / "new.toml"))
    coset("schemes", PIPELINE, *words)
    text = (tmp_path / "new.toml").read_text()
    settings = Settings.read(text, "new.toml")
    assert (settings.limit, settings.grouper) == (7, "round-robin")
    assert list(settings.schemes) == [STAGE]
    assert "# Proposed by `coset schemes delays`." in text
    assert f"# {STAGE}: 2 -> " in text


def test_a_file_that_cannot_be_written_is_refused(landed: Store, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["schemes", PIPELINE, "--write", str(tmp_path / "none" / "settings.toml")])
    assert result.exit_code == 3
    assert "the settings cannot be written" in result.stderr
