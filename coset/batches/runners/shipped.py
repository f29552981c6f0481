"""Shipped code: packages of a deployment that are sent to Spark's workers, so that they need not be installed there.

The variable COSET_SHIP of the process that runs task groups names them, as in COSET_SHIP=shop. No document does. Each
package has to be one that COSET_IMPORTS allows.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from typing import ClassVar

from partitioning.errors import Refused
from partitioning.imports import ALLOWED, is_allowed
from partitioning.kinds import Kind

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
