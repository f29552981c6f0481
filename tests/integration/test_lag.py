"""How far a pipeline is behind, in records and in time: in status, and as metrics that others read."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.batches.ends import ends_after
from coset.batches.progress import Progress, progress
from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import NOTHING, Ends
from tests.landed import land_file
from tests.sparse import FIRST, counted, land, published

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "lag.md").read_text()
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
