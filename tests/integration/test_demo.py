"""The demo, from the records that it lands to its results, with a kill in the middle, and a second time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from coset.sources.files import Files
from demo.landing import STREAMS, land, raw
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from tests.started import kill_all_that_name, started
from tests.there import there

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "start.md").read_text()
FOLDERS = {"airflow", "docs", "lock", "logs", "s3"}
RUN_AGAIN = (
    "Batch 0 was run again under tasks(12), with 12 tasks instead of 4, found identical, and swapped: "
    "readers see the same 11,109 rows in tail_activity version 4 as in version 3."
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalogue, which the environment asks for: the demo needs no more, nor does Airflow."""
    folder = tmp_path_factory.mktemp("lake")
    uri, warehouse = f"sqlite:///{folder}/lake.db", f"file://{folder}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSET_ICEBERG", "lake.demo")
        patch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        patch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", warehouse)
        yield load_catalog("lake", uri=uri, warehouse=warehouse)


@pytest.fixture(scope="module")
def home(lake: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    kill_all_that_name(folder)


def command(home: Path) -> list[str]:
    return [sys.executable, "-m", "coset.cli.main", "demo", "--home", str(home)]


def kill_once_planned(home: Path) -> None:
    """Start the demo and kill it when its first batch is planned; what it started ends with it."""
    with started(command(home)) as demo:
        assert demo.stderr is not None
        assert any("planned" in line for line in demo.stderr)
        begun = psutil.Process(demo.pid).children(recursive=True)
        assert {"weed", "java", "airflow"} <= {process.name() for process in begun}
        demo.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(begun, timeout=30)[1] == []


def test_the_demo_goes_on_after_a_kill_and_its_results_equal_the_raw_data(home: Path) -> None:
    kill_once_planned(home)
    done = subprocess.run(command(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 of 4,043 aircraft differ." in done.stdout
    assert "gcd(12, 8) = 4" in done.stdout
    assert done.stdout.count(RUN_AGAIN) == 1
    assert done.stdout.count("all 15 expectations met") == 3
    assert "0 of 107 airports differ." in done.stdout
    moved = done.stdout.partition("Airports: what moved")[2].splitlines()[3:6]
    assert [row.split()[1:3] for row in moved] == [["3", "218,238"], ["5", "231,582"], ["3", "223,732"]]
    assert "26,115" in moved[0]
    assert str(home / "docs" / "tail_activity" / "index.html") in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(("  yes", "  no"))]
    assert {row[-1] for row in rows} == {"yes"}
    assert "336,776" in rows[-1]


def test_its_tables_are_in_the_catalogue_too(home: Path, lake: Catalog) -> None:
    found = [there(each.summary) for each in lake.load_table("demo.tail_activity").snapshots()]
    assert [each.additional_properties["coset.version"] for each in found] == ["1", "2", "3", "4"]
    assert [each["total-records"] for each in found[2:]] == ["11109", "11109"]
    assert {name for _, name in lake.list_tables("demo")} == {"airport_totals", "airport_traffic", "tail_activity"}


def is_shortened(line: str, printed: str) -> bool:
    """Whether all words of a line are in one of those printed, in their order."""
    return any(all(word in words for word in line.split()) for words in map(iter, map(str.split, printed.splitlines())))


def test_the_readme_shows_what_a_demo_ends_with(home: Path) -> None:
    shown = PAGE.partition("It ends with, shortened:\n\n```text\n")[2].partition("```")[0]
    wide = os.environ | {"COLUMNS": "250"}
    done = subprocess.run(command(home), capture_output=True, text=True, check=False, env=wide)
    printed = done.stdout.replace(f"{home}/", ".coset/")
    assert shown.splitlines()
    assert [line for line in shown.splitlines() if not is_shortened(line, printed)] == []


def test_a_second_demo_has_nothing_to_do_and_starts_no_airflow(home: Path) -> None:
    logs = sorted((home / "logs").iterdir())
    done = subprocess.run(command(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing to do: no new records since batch 2")
    assert RUN_AGAIN in done.stdout
    assert sorted((home / "logs").iterdir()) == logs


def test_the_demo_keeps_everything_in_its_folder_and_ends_its_server(home: Path) -> None:
    assert {path.name for path in home.iterdir()} == FOLDERS
    running = [each.info["cmdline"] for each in psutil.process_iter(["cmdline"]) if each.pid != os.getpid()]
    assert not [words for words in running if any(str(home) in word for word in words or ())]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[Mapping[str, int]]]:
    """A store with all three parts, and what landing each part said."""
    source = str(tmp_path_factory.mktemp("landing") / "topics")
    return store_at(source), [land(part, source) for part in range(3)]


@pytest.fixture(scope="module")
def partitions(landed: tuple[Store, list[Mapping[str, int]]]) -> dict[tuple[str, int], pa.Table]:
    """What lies in each stream partition, file after file."""
    store, _ = landed
    tables: dict[tuple[str, int], list[pa.Table]] = {}
    for stream in STREAMS:
        for entry in store.list(f"{stream}/partition="):
            partition = int(entry.key.split("partition=")[1].split("/")[0])
            tables.setdefault((stream, partition), []).append(pq.read_table(Files().open(f"{store.root}/{entry.key}")))
    return {key: pa.concat_tables(found) for key, found in tables.items()}


def test_all_of_the_package_lands_in_three_parts_once(landed) -> None:
    counts = landed[1]
    assert sum(count["flights"] for count in counts) == 336_776
    assert all(count["flights"] > 100_000 for count in counts)
    assert [count["planes"] for count in counts] == [3_322, 0, 0]
    assert [count["weather"] for count in counts] == [26_115, 0, 0]
    store, _ = landed
    before = Counter(store.list(""))
    assert all(not any(land(part, store.root).values()) for part in range(3))
    assert Counter(store.list("")) == before


def test_what_landed_is_what_the_package_holds_where_murmur2_puts_it(partitions) -> None:
    nulls = [partitions["flights", partition]["tailnum"].null_count for partition in range(12)]
    assert sum(nulls) == 2_512
    assert max(nulls) - min(nulls) <= 1
    for (stream, partition), table in partitions.items():
        key, count = STREAMS[stream]
        places = {placement_hash(each) % count for each in table[key].unique().to_pylist() if each is not None}
        assert places <= {partition}, f"{stream}-{partition}"
    for table in partitions.values():
        assert table["_offset"].to_pylist() == list(range(table.num_rows))
    with raw() as connection:
        for stream in STREAMS:
            parts = [table.drop_columns("_offset") for (name, _), table in partitions.items() if name == stream]
            connection.register("landed", pa.concat_tables(parts))
            for one, other in (("landed", stream), (stream, "landed")):
                missing = f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})"
                assert connection.execute(missing).fetchall() == [(0,)]


def test_a_part_is_refused_before_the_one_that_it_follows(store: Store) -> None:
    with pytest.raises(Refused, match="land part 0 first"):
        land(1, store.root)
    assert list(store.list("")) == []


def test_a_part_that_does_not_exist_is_refused(store: Store) -> None:
    with pytest.raises(Refused, match="there is no part 3"):
        land(3, store.root)
