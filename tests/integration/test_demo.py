"""The demo from nothing to its results, with a kill in the middle, and a second time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.started import kill_all_that_name, started
from tests.there import there

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "demo.md").read_text()
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
    assert len(shown.splitlines()) > 25
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
