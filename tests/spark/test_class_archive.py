"""How PySpark starts: compiled, and with the class archive where it is there and fits."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from coset.batches.runners.spark_settings import (
    archive_file,
    archive_option,
    configuration,
    environment,
    java_from_pypi,
    making_option,
    outdated,
)
from tests.there import there

JARS = Path(pyspark.__file__).parent / "jars"
JAVAS: dict[str, Mapping[str, str]] = {"the machine's": environment(), "from PyPI": java_from_pypi()}


@pytest.fixture(scope="module", params=list(JAVAS))
def java(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a Java."""
    return dict(os.environ | JAVAS[request.param])


def run(java: Mapping[str, str], *options: str, jars: Path = JARS) -> str:
    """Run a part of Spark that starts no application, with options as Spark splits them; what is said."""
    home = java.get("JAVA_HOME")
    command = [
        f"{home}/bin/java" if home else "java",
        *(option for given in options for option in shlex.split(given)),
        "-cp",
        f"{jars}/*",
        "org.apache.spark.deploy.SparkSubmit",
    ]
    return subprocess.run(
        [*command, "--version"], env=java, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark's jars at another address, where they are others to Java."""
    folder = tmp_path_factory.mktemp("spark") / "jars"
    folder.symlink_to(JARS)
    return folder


@pytest.fixture(scope="module")
def archive(java: dict[str, str], jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of those, in a folder of its own."""
    folder = tmp_path_factory.mktemp("a folder")
    file = there(archive_file(java, folder))
    assert archive_option(java, folder) == ""
    run(java, making_option(file), jars=jars)
    return file


@pytest.mark.long
def test_the_archive_that_was_made_is_used(java: dict[str, str], archive: Path, jars: Path) -> None:
    option = archive_option(java, archive.parent)
    assert str(archive) in option
    loaded = run(java, option, "-Xlog:class+load:stdout", jars=jars)
    spark = next(line for line in loaded.splitlines() if "org.apache.spark.deploy.SparkSubmit " in line)
    assert "shared objects file" in spark


@pytest.mark.long
def test_an_archive_that_does_not_fit_is_left_out_without_a_word(
    java: dict[str, str], archive: Path, tmp_path: Path
) -> None:
    _starts_silently(java, archive.parent)
    (tmp_path / archive.name).write_bytes(b"no archive")
    _starts_silently(java, tmp_path)


def _starts_silently(java: Mapping[str, str], archives: Path) -> None:
    said = run(java, archive_option(java, archives))
    assert f"version {pyspark.__version__}" in said
    # So begins what a JVM says of itself.
    assert not [line for line in said.splitlines() if line.startswith("[")]


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        ('IMPLEMENTOR="x"\nJAVA_RUNTIME_VERSION="17.0.15+6"\n', "java-17.0.15+6.jsa"),
        ('JAVA_VERSION="21.0.2"\n', "java-21.0.2.jsa"),
        ('JAVA_VERSION="25.0.2"\n', "java-25.0.2.aot"),
    ],
)
def test_an_archive_is_for_one_version_of_java_and_of_spark(release: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "release").write_text(release)
    archive = there(archive_file({"JAVA_HOME": str(tmp_path)}, tmp_path))
    assert archive.name.startswith(f"spark-{pyspark.__version__}-")
    assert archive.name.endswith(kind)


def test_a_java_without_a_version_has_no_archive_and_those_of_other_jars_are_outdated(tmp_path: Path) -> None:
    assert archive_file({"JAVA_HOME": str(tmp_path)}) is None
    assert archive_option({"JAVA_HOME": str(tmp_path)}) == ""
    assert archive_option({"PATH": str(tmp_path)}) == ""
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.2"')
    other_java = there(archive_file({"JAVA_HOME": str(tmp_path)}, tmp_path))
    other_jars = tmp_path / "spark-3.0.0-1-java-21.0.2.jsa"
    for archive in (other_java, other_jars):
        archive.touch()
    assert outdated(tmp_path) == [other_jars]


@pytest.mark.parametrize("program", [None, "echo no such option; exit 1"], ids=["without Java", "another Java"])
def test_where_no_archive_can_be_made_the_set_up_goes_on(program: str | None, tmp_path: Path) -> None:
    home, archives = tmp_path / "java", tmp_path / "archives"
    (home / "bin").mkdir(parents=True)
    if program:
        (home / "release").write_text('JAVA_VERSION="17.0.1"')
        (home / "bin" / "java").write_text(f"#!/bin/sh\n{program}\n")
        (home / "bin" / "java").chmod(0o700)
    code = f"""
from pathlib import Path; from coset.batches.runners.rehearsal import make_archive
print(make_archive(Path({str(archives)!r})))"""
    environment = os.environ | {"JAVA_HOME": str(home), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("No class archive is made: ")
    assert not list(tmp_path.rglob("*.jsa"))


def test_whatever_starts_spark_uses_it() -> None:
    # `make setup` made it.
    option = archive_option(os.environ | environment())
    assert option
    for master in ("local[*]", "spark://elsewhere:7077"):
        assert option in configuration(master)["spark.driver.extraJavaOptions"]


ARCHIVES = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))


@pytest.mark.parametrize("module", ["spark_jobs.daemon", "spark_jobs.run_group"])
def test_the_archive_of_what_is_installed_is_not_read(module: str) -> None:
    assert imported_from(ARCHIVES, module) == pyspark.__file__


def test_another_spark_brings_its_own(tmp_path: Path) -> None:
    others = [Path(shutil.copy(archive, tmp_path)) for archive in ARCHIVES]
    assert imported_from(others, "spark_jobs.daemon").startswith(str(tmp_path))


def imported_from(archives: list[Path], module: str) -> str:
    """Where PySpark is imported from by a module, if Spark names these archives first."""
    path = os.pathsep.join([*map(str, archives), os.environ.get("PYTHONPATH", "")])
    code = f"import {module}, pyspark; print(pyspark.__file__)"
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()
