"""The wheel of the clone, environments that have it, and a company's repository in which it is used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from inspect import getsource
from pathlib import Path

import pyarrow as pa

from tests.landed import land_table
from tests.offline_first import installing
from tests.released import shop

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
# Variables that tests, and a Spark session in their process, set.
OF_TESTS = ("AIRFLOW", "AWS_", "COSET_", "PYSPARK_", "PYTEST_", "SPARK_")
# Names that a company's own repository has.
OWN = ("batches", "bench", "cli", "dags", "demo", "plugins", "sources", "tests")
PIPELINE = '''"""How often each user looked."""

from coset import Pipeline
from sources.places import LANDING

pipeline = Pipeline("views", source=LANDING)
pipeline.stream("views", key="user", partitions=3).aggregate("count(*) AS n", name="counts").write("counts")
'''
DAG = '''"""Airflow: the DAG of views."""

from coset import Settings
from coset.airflow import Place, coset_dag
from dags.pipelines.views import pipeline

dag = coset_dag(pipeline, settings=Settings(groups=1), places={"here": Place()})
'''


def made_in(folder: Path) -> Path:
    """The wheel of the clone, made from what git would commit of it."""
    for name in files():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    uv("build", "--quiet", "--wheel", "--out-dir", folder / "made", folder / "clone")
    (made,) = (folder / "made").glob("*.whl")
    return made


def installed_in(folder: Path, *what: str, version: str = "3.11", pinned: Path | None = None) -> Path:
    pinned = pinned or ROOT / f"constraints/constraints-{version}.txt"
    uv("venv", "--quiet", "--python", interpreter(version), folder)
    uv("pip", "install", "--quiet", "--constraint", pinned, "--python", folder / "bin/python", *what)
    if interpreter(version) == Path(sys.executable):
        link_compiled(folder)
    return folder / "bin"


def uv(*words: object) -> None:
    done = installing([UV, *words], ROOT)
    assert done.returncode == 0, done.stderr


def interpreter(version: str) -> Path:
    """The interpreter of a version of Python, as pyenv installs it or on the path."""
    if sys.version.startswith(f"{version}."):
        return Path(sys.executable)
    found = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *map(Path, filter(None, [shutil.which(f"python{version}")])),
    ]
    assert found, f"install Python {version}: it is tested too"
    return found[0]


def link_compiled(folder: Path) -> None:
    """Spare an environment the compiling of what is compiled in this one; Python takes what is of the same source."""
    (there,) = folder.glob("lib/python*/site-packages")
    here = Path(pa.__file__).parents[1]
    for package in here.iterdir():
        for compiled in package.rglob("*.pyc") if (there / package.name).is_dir() else ():
            _link(compiled, there / compiled.relative_to(here))
    # Of these Numba has compiled functions too.
    for package in (ROOT / name for name in ("coset", "expectations", "partitioning", "spark_jobs")):
        for source in package.rglob("*.py"):
            if (same := there / source.relative_to(ROOT)).exists():
                shutil.copystat(source, same)
        for compiled in package.rglob("__pycache__/*"):
            _link(compiled, there / compiled.relative_to(ROOT))


def _link(compiled: Path, to: Path) -> None:
    """Link a compiled file if its package is there, and no such file."""
    if to.parent.parent.is_dir() and not to.exists():
        to.parent.mkdir(exist_ok=True)
        to.hardlink_to(compiled)


def company_in(folder: Path) -> Path:
    """A repository with packages of its own that have the names of folders here, and records that have landed."""
    for name in OWN:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    (folder / "sources/places.py").write_text(f"LANDING = 'file://{folder}/landing'\n")
    (folder / "dags/pipelines").mkdir()
    (folder / "dags/pipelines/__init__.py").write_text("")
    (folder / "dags/pipelines/views.py").write_text(PIPELINE)
    (folder / "dags/views.py").write_text(DAG)
    table = pa.table({"user": [f"user-{number % 7}" for number in range(100)]})
    land_table(table, "views", f"file://{folder}/landing", key="user", partitions=3)
    return folder


def of_released(source: str) -> str:
    """The code of a pipeline with all steps that keep something, as released versions ran it."""
    head = "from datetime import timedelta\n\nfrom coset import Pipeline\n\n\n"
    return f'{head}{getsource(shop)}\n\npipeline = shop("{source}")\n'


def pins(file: Path) -> dict[str, str]:
    """The versions of packages in a file of requirements."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text(), re.M))


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()]


def run(words: list[object], folder: Path, **variables: str) -> str:
    """Run a command that succeeds; what it prints."""
    done = _ended(words, folder, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(words: list[object], folder: Path) -> str:
    """Run a command that is refused; what it says is wrong."""
    done = _ended(words, folder, {})
    assert done.returncode == 3, done.stdout + done.stderr
    return done.stderr


def _ended(words: list[object], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    left = {name: value for name, value in os.environ.items() if not name.startswith(OF_TESTS)}
    environment = {**left, "PYTHONPATH": str(folder), **variables}
    return subprocess.run([*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
