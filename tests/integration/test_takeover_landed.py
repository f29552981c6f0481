"""`coset takeover --pipeline`: Samza's checkpoints beside what has landed, and the batch that starts there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.documents.store import Store
from tests.landed import land_file

PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")
CHECKPOINTS = "".join(
    f"tasknames.Partition {number}.systems.kafka.streams.flights.partitions.{number}={offset}\n"
    for number, offset in ((0, 9), (1, 99), (2, 104))
)


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Flights that begin at offset 0, 50, 100 and 150, a hundred in each partition, and planes."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    flights = pa.table({"tailnum": ["N1"] * 100, "delay": pa.array([1] * 100, pa.int64())})
    for number in range(4):
        land_file(flights, "flights", f"{store.root}/topics", number, 50 * number)
    land_file(pa.table({"tailnum": ["N1"], "seats": pa.array([2], pa.int64())}), "planes", f"{store.root}/topics", 0, 0)
    return store


def takeover(folder: Path, text: str, *words: str) -> Result:
    (folder / "offsets.properties").write_text(text)
    words = ("takeover", str(folder / "offsets.properties"), "--pipeline", PIPELINE, *words)
    return CliRunner().invoke(app, words)


def test_the_first_batch_starts_where_samza_stopped(landed: Store, tmp_path: Path) -> None:
    result = takeover(tmp_path, CHECKPOINTS)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1:] == [
        "[starts]",
        "flights-0 = 10",
        "flights-1 = 100",
        "flights-2 = 105",
        "# flights-3 starts at its beginning",
    ]
    (tmp_path / "settings.toml").write_text(result.stdout)
    words = ["plan", PIPELINE, "--settings", str(tmp_path / "settings.toml"), "--json"]
    plan = json.loads(CliRunner().invoke(app, words).stdout)["plan"]
    flights = next(stream for stream in plan["streams"] if stream["declared"]["name"] == "flights")
    assert [(part["start"], part["end"]) for part in flights["partitions"]] == [
        (10, 100),
        (100, 150),
        (105, 200),
        (150, 250),
    ]
    assert plan["starts"] == {"flights-0": 10, "flights-1": 100, "flights-2": 105}


def test_what_has_not_landed_is_refused_with_what_has(landed: Store, tmp_path: Path) -> None:
    text = CHECKPOINTS + "tasknames.Partition 3.systems.kafka.streams.flights.partitions.3=9\n"
    result = takeover(tmp_path, text.replace(".1=99", ".1=500"))
    assert result.exit_code == 3
    assert "flights-1 has to start at 501, but [50,150) has landed" in result.stderr
    assert "land the topic up to there" in result.stderr
    assert "flights-3 has to start at 10, but [150,250) has landed" in result.stderr
    assert "go on without it: flights-3 = 150" in result.stderr


def test_a_pipeline_without_any_checkpoint_is_refused(landed: Store, tmp_path: Path) -> None:
    result = takeover(tmp_path, CHECKPOINTS.replace("flights", "flihgts"))
    assert result.exit_code == 3
    assert "there is no checkpoint of flights" in result.stderr
    assert "planes" not in result.stderr
