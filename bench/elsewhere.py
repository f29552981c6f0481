"""Environments of parties that need other packages, or another version of Spark: made once in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.party import JARS, Party
from coset.batches.runners.spark_settings import environment
from demo.kafka_jars import cache, jars_of

_ROOT = Path(__file__).parents[1]
_UV = Path(sys.executable).with_name("uv")


def python_of(party: Party) -> str:
    """The Python that runs a party."""
    if party.pyspark is None:
        return sys.executable
    # Its own setup asks for setuptools, which Python 3.11 need not have.
    return str(environment_of(f"pyspark-{party.pyspark}", f"pyspark=={party.pyspark}", "setuptools"))


def environment_of(name: str, *packages: str) -> Path:
    """The Python of an environment with these packages, made once. One of other packages has another name."""
    folder = cache() / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        subprocess.run([_UV, "venv", "--quiet", "--clear", "--python", "3.11", folder], check=True)
        subprocess.run([_UV, "pip", "install", "--quiet", "--python", python, *packages], check=True)
        ready.touch()
    return python


def variables_of(party: Party) -> Mapping[str, str]:
    """The variables of a party."""
    python = python_of(party)
    ours = {**os.environ, **environment(python), "PYTHONPATH": str(_ROOT)}
    if party.pyspark is not None:
        del ours["SPARK_HOME"]
    return ours | ({JARS: str(jars_of(Path(__file__).with_name(party.pom)))} if party.pom else {})
