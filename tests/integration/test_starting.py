"""`coset init`: the repository that it writes works as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import coset

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    done = coset("init", "shop", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Written: shop/.github/workflows/test.yml" in done.stdout
    assert done.stdout.endswith("Next: cd shop && python -m pytest\n")
    return folder / "shop"


def environment() -> dict[str, str]:
    """That of somebody who has installed Coset and set nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COSET_", "AWS_", "SPARK_"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def test_the_commands_of_its_readme_say_what_it_has_landed(made: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (made / "README.md").read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "land" in each)
    said = []
    for line in block.splitlines():
        done = coset(*line.split()[1:], environment=environment(), folder=made)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert re.search(r"ann +2 +8\n", said[2])
    assert said[3].startswith("## spent, batch 0: ✓ proved\n")


@pytest.mark.long
def test_the_commands_of_the_guide_run_in_it(tmp_path: Path) -> None:
    page, *others = (
        (ROOT / "docs" / "guide" / f"{name}.md").read_text() for name in ("own-repository", "upgrading", "own-pipeline")
    )
    (scores,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", "".join([page, *others]), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("export ")]
    assert lines[:3] == ["coset init shop", "cd shop", "python -m pytest"]
    folder, said = tmp_path, {}
    for line in (lines[0], *lines[3:]):
        done = coset(*line.split()[1:], environment=environment(), folder=folder)
        assert done.returncode == 0, (line, done.stderr)
        said[line], folder = done.stdout, tmp_path / "shop"
        # The page adds it before it lists both.
        (folder / "dags" / "pipelines" / "scores.py").write_text(scores)
    assert re.search(r"ann +2 +8\n", said["coset rows spent"])
    assert "Step parts: 3 rows" in said["coset show spent --step parts --limit 20"]
    assert (folder / "plan.svg").is_file()
    assert re.search(r"ann +30\n", said["coset rows scores"])


def test_its_pipelines_are_listed_with_those_of_the_store(tmp_path: Path) -> None:
    there = environment()
    nothing = coset("list", environment=there, folder=tmp_path)
    assert nothing.stdout.startswith("No pipeline is in dags/pipelines, and none has run in file://")
    assert coset("init", "shop", folder=tmp_path).returncode == 0
    shop = tmp_path / "shop"
    assert re.search(
        r"spent +never run +dags/pipelines/spent.py\n", coset("list", environment=there, folder=shop).stdout
    )
    for words in (("land", "spent", "orders", "orders.csv"), ("run", "spent", "--runner", "local")):
        assert coset(*words, environment=there, folder=shop).returncode == 0
    (shop / "dags" / "pipelines" / "spent.py").rename(shop / "spent.py")
    (shop / "dags" / "pipelines" / "broken.py").write_text("1 / 0\n")
    done = coset("list", environment=there, folder=shop)
    assert done.returncode == 3
    assert re.search(r"spent +✓ proved +0 .*UTC +batch 0, .*UTC +4, .* not in this project\n", done.stdout)
    assert "broken.py: the pipeline's file fails: ZeroDivisionError" in done.stdout
    (row,) = json.loads(coset("list", "--json", environment=there, folder=shop).stdout)
    assert (row["pipeline"], row["newest"]["outcome"], row["file"]) == ("spent", "proved", None)


@pytest.mark.long
def test_its_dags_are_some_that_airflow_loads(made: Path) -> None:
    program = (
        "import scheduled; print(sorted(scheduled.spent.task_ids)); scheduled.spent_backfill, scheduled.spent_undo"
    )
    there = environment() | {"PYTHONPATH": f"{ROOT}:{made / 'dags'}", "COSET_ENV": "prod"}
    there |= {"AIRFLOW_HOME": str(made / ".airflow")}
    done = subprocess.run([sys.executable, "-c", program], env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'publish'" in done.stdout


def test_nothing_is_overwritten_and_a_name_is_one(made: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    again = coset("init", str(made), folder=tmp_path)
    assert again.returncode == 3
    assert "the folder is not empty, and nothing is overwritten" in again.stderr
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert coset("init", "a shop", folder=tmp_path).returncode == 3
    assert list(tmp_path.iterdir()) == []
