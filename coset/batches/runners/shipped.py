"""Shipped code: packages of a deployment that are sent to Spark's workers, so that they need not be installed there.

The variable COSET_SHIP of the process that runs task groups names them, as in COSET_SHIP=shop. No document does. Each
package has to be one that COSET_IMPORTS allows.

Packs what tasks import into an archive for Spark's workers, which then need neither Coset nor its packages. Spark
unpacks it on each worker (`spark.archives`). It has a Python in `bin`, which is the worker's Python with the packages
of the archive; so a worker needs Python of the same minor version, wherever it is, and Spark.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import ClassVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coset.batches.runners.given_settings import Settings
from partitioning.errors import Finding, Refused, refuse
from partitioning.imports import ALLOWED, is_allowed
from partitioning.kinds import Kind
from spark_jobs.worker_code import Code, installed

SHIPPED = "COSET_SHIP"

_BEGINNING = (1980, 1, 1, 0, 0, 0)
_COMPILED = {".so", ".pyd", ".dylib"}


class Shipped:
    """The packages that COSET_SHIP names, in one archive, which is named by its content."""

    _folder: ClassVar[tempfile.TemporaryDirectory[str] | None] = None

    def __init__(self) -> None:
        names = [name.strip() for name in os.environ.get(SHIPPED, "").split(",") if name.strip()]
        files = {place: file.read_bytes() for name in names for place, file in _files(name)}
        digest = sha256()
        for place, content in sorted(files.items()):
            digest.update(f"{place}\0{len(content)}\0".encode() + content)
        self._content = files
        self.digest = digest.hexdigest()[:16] if files else ""

    def archive(self) -> str | None:
        """The path of the archive. None if nothing is shipped."""
        if not self._content:
            return None
        if Shipped._folder is None:
            # The folder ends with this process.
            Shipped._folder = tempfile.TemporaryDirectory(prefix="coset-shipped-")
        path = Path(Shipped._folder.name) / f"coset-shipped-{self.digest}.zip"
        if not path.exists():
            # Another thread may write the same archive.
            with (
                tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file,
                zipfile.ZipFile(file, "w") as archive,
            ):
                # Python finds a package without `__init__` by the entry of its folder.
                folders = {f"{folder}/": b"" for place in self._content for folder in PurePosixPath(place).parents[:-1]}
                for place, content in sorted((folders | self._content).items()):
                    archive.writestr(zipfile.ZipInfo(place, _BEGINNING), content, zipfile.ZIP_DEFLATED)
            Path(file.name).replace(path)
        return str(path)


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """The files of a package or module, and the `__init__` of its parents, each with its path in the archive."""
    if not is_allowed(name):
        then = f"name it in {ALLOWED} too, or do not ship it"
        raise Refused.of(Kind.SHIPPING, f"{name!r} is to be shipped, but may not be called", SHIPPED, then, name=name)
    *parents, _ = name.split(".")
    for count in range(1, len(parents) + 1):
        parent = _spec(".".join(parents[:count]))
        if parent.origin:
            yield f"{'/'.join(parents[:count])}/__init__.py", Path(parent.origin)
    spec, place = _spec(name), name.replace(".", "/")
    if spec.submodule_search_locations is None:
        yield f"{place}.py", _source(Path(spec.origin or ""), name)
        return
    for folder in map(Path, spec.submodule_search_locations):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{place}/{file.relative_to(folder).as_posix()}", _source(file, name)


def _spec(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        what = f"{name!r} is to be shipped, but cannot be found"
        raise Refused.of(Kind.SHIPPING, what, SHIPPED, "correct the name, or install it", name=name)
    return spec


def _source(file: Path, name: str) -> Path:
    if file.suffix in _COMPILED or not file.is_file():
        what = f"{name!r} is to be shipped, but {file.name or name} is not source code"
        raise Refused.of(Kind.SHIPPING, what, SHIPPED, "install it where tasks run", name=name)
    return file


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
            found.update(_packed_files(distribution(need.name)))
        else:
            missing.append(_missing(f"the package {need.name}", need.name))
    for module in (*_OWN, *also):
        files = dict(_modules(module))
        found.update(files)
        if not files:
            missing.append(_missing(f"the module {module}", module))
    refuse(missing)
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


def _packed_files(of: Distribution) -> Iterator[tuple[str, Path]]:
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
