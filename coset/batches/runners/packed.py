"""Packs what tasks import into an archive for Spark's workers, which then need neither Coset nor its packages.

Spark unpacks it on each worker (`spark.archives`). It has a Python in `bin`, which is the worker's Python with the
packages of the archive; so a worker needs Python of the same minor version, wherever it is, and Spark.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coset.batches.runners.given_settings import Settings
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from spark_jobs.worker_code import Code, installed

# The folder into which Spark unpacks the archive beside each executor.
FOLDER = "coset"
# What tasks import; all that these need comes with them.
_NEEDED = (
    *("boto3", "duckdb", "fastavro[snappy,zstandard]", "msgspec", "numba"),
    *("numpy", "pandas", "psutil", "pyarrow", "tenacity"),
)
# What is packed too if it is installed here: it reads topics from their brokers.
_FOR_KAFKA = ("confluent-kafka[schemaregistry]", "httpx2")
_OWN = ("coset", "partitioning", "spark_jobs")
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Spark puts its own PySpark before; functions of users that are shipped come before that.
_SCRIPT = f"""#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$PYTHONPATH:$here/lib" exec {_PYTHON} "$@"
"""


def pack(file: Path, also: Iterable[str] = ()) -> Code:
    """Write the archive, with the modules and packages `also` and what they need. Returns what it has.

    Raises Refused, with all findings, if something is not installed here; and if the file cannot be written.
    """
    by_module, also = packages_distributions(), tuple(also)
    named = [name for module in also for name in by_module.get(module.partition(".")[0], ())]
    kafka = _FOR_KAFKA if all(map(_installed, map(Requirement, _FOR_KAFKA))) else ()
    found, missing = dict[str, Path](), list[Finding]()
    for need in _closed(map(Requirement, (*_NEEDED, *kafka, *named))):
        if _installed(need):
            found.update(_files(distribution(need.name)))
        else:
            missing.append(_missing(f"the package {need.name}", need.name))
    for module in (*_OWN, *also):
        files = dict(_modules(module))
        found.update(files)
        if not files:
            missing.append(_missing(f"the module {module}", module))
    if missing:
        raise Refused(*missing)
    try:
        with tarfile.open(file, "w:gz", compresslevel=1) as archive:
            for place, path in sorted(found.items()):
                archive.add(path, f"lib/{place}", recursive=False)
            script = tarfile.TarInfo("bin/python")
            script.size, script.mode = len(_SCRIPT), 0o755
            archive.addfile(script, io.BytesIO(_SCRIPT.encode()))
    except OSError as error:
        what, then = f"the archive cannot be written: {error.strerror or error}", "name another file"
        raise Refused.of(Kind.LOCAL_FILE, what, str(file), then, file=file) from error
    return installed()


def settings_for(file: Path) -> Settings:
    """The settings with which Spark's workers use the archive."""
    address = str(file.resolve())
    return {"spark.archives": f"{address}#{FOLDER}", "spark.pyspark.python": f"./{FOLDER}/bin/python"}


def _missing(what: str, name: str) -> Finding:
    then = "install it here, since the archive has what is installed here; or correct the name"
    return Finding.of(Kind.SHIPPING, f"{what} is to be packed, but is not installed", sys.prefix, then, name=name)


def _installed(need: Requirement) -> bool:
    try:
        distribution(need.name)
    except PackageNotFoundError:
        return False
    return True


def _closed(needs: Iterable[Requirement]) -> Iterator[Requirement]:
    """These requirements and all that they need here in turn, each once."""
    left, seen = list(needs), set[tuple[str, frozenset[str]]]()
    while left:
        need = left.pop()
        key = canonicalize_name(need.name), frozenset(need.extras)
        if key in seen:
            continue
        seen.add(key)
        yield need
        if _installed(need):
            for text in distribution(need.name).requires or ():
                more = Requirement(text)
                if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *need.extras)):
                    left.append(more)


def _files(of: Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a distribution that are imported, with what they are compiled to, and its metadata."""
    for file in of.files or ():
        path = Path(str(of.locate_file(file)))
        if ".." not in file.parts and path.is_file():
            yield file.as_posix(), path


def _modules(name: str) -> Iterator[tuple[str, Path]]:
    """The files of a module or package, with what they are compiled to; of its parents the `__init__` only."""
    *parents, _ = name.split(".")
    for count in range(1, len(parents) + 1):
        parent = find_spec(".".join(parents[:count]))
        if parent is not None and parent.origin:
            yield f"{'/'.join(parents[:count])}/__init__.py", Path(parent.origin)
    spec, place = find_spec(name), name.replace(".", "/")
    if spec is None:
        return
    if spec.submodule_search_locations is None and spec.origin:
        yield f"{place}{Path(spec.origin).suffix}", Path(spec.origin)
    for folder in map(Path, spec.submodule_search_locations or ()):
        for file in folder.rglob("*"):
            if file.is_file():
                yield f"{place}/{file.relative_to(folder).as_posix()}", file
