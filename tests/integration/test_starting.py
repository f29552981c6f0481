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


def environment(made: Path) -> dict[str, str]:
    """That of somebody who has installed Coset and set nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COSET_", "AWS_", "SPARK_"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def test_its_own_tests_pass_at_once(made: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=made, env=environment(made), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_commands_of_its_readme_say_what_it_has_landed(made: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (made / "README.md").read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "land" in each)
    said = []
    for line in block.splitlines():
        done = coset(*line.split()[1:], environment=environment(made), folder=made)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert re.search(r"ann +2 +8\n", said[2])
    assert said[3].startswith("## spent, batch 0: ✓ proved\n")


def test_its_pipelines_are_listed_with_those_of_the_store(tmp_path: Path) -> None:
    there = environment(tmp_path)
    nothing = coset("list", environment=there, folder=tmp_path)
    assert nothing.stdout.startswith("No pipeline is in dags/pipelines of this folder, and none has run in file://")
    assert coset("init", "shop", folder=tmp_path).returncode == 0
    shop = tmp_path / "shop"
    assert re.search(
        r"spent +never run +– +– +– +dags/pipelines/spent.py\n", coset("list", environment=there, folder=shop).stdout
    )
    for words in (("land", "spent", "orders", "orders.csv"), ("run", "spent", "--runner", "local")):
        assert coset(*words, environment=there, folder=shop).returncode == 0
    (shop / "dags" / "pipelines" / "spent.py").rename(shop / "spent.py")
    (shop / "dags" / "pipelines" / "broken.py").write_text("1 / 0\n")
    done = coset("list", environment=there, folder=shop)
    assert done.returncode == 3
    assert re.search(r"spent +✓ proved +0 .*UTC +batch 0, .*UTC +not in this folder\n", done.stdout)
    assert "broken.py: the pipeline's file fails: ZeroDivisionError" in done.stdout
    (row,) = json.loads(coset("list", "--json", environment=there, folder=shop).stdout)
    assert (row["pipeline"], row["newest"]["outcome"], row["file"]) == ("spent", "proved", None)


def test_its_dag_is_one_that_airflow_loads(made: Path) -> None:
    program = "from spent import dag; print(sorted(dag.task_ids))"
    there = environment(made) | {"PYTHONPATH": f"{ROOT}:{made / 'dags'}", "COSET_STORE": "s3://lake/coset"}
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
