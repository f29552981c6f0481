"""Documents that are stored somewhere mean what they meant when they were written, or are refused."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import partitioning
from partitioning.documents.document import decode, encode, plain
from partitioning.errors import Refused
from partitioning.values import Document
from tests.corpus import FOLDER

STORED = sorted(path for path in FOLDER.glob("*.json") if not path.name.endswith(".plain.json"))


def kinds(of: type[Document] = Document) -> Iterator[type[Document]]:
    """All kinds of documents in the core."""
    for kind in of.__subclasses__():
        if kind.__module__.startswith("partitioning."):
            yield kind
        yield from kinds(kind)


for module in pkgutil.walk_packages(partitioning.__path__, "partitioning."):
    import_module(module.name)
KINDS = {kind.FORMAT: kind for kind in kinds()}


def format_of(path: Path) -> str:
    return str(json.loads(path.read_bytes())["format"])


CURRENT = [path for path in STORED if format_of(path) in KINDS]
OLD = [path for path in STORED if path not in CURRENT]


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_a_document_says_what_it_said_when_it_was_written(path: Path) -> None:
    data = path.read_bytes()
    document = decode(KINDS[format_of(path)], data, path.name)
    assert json.loads(json.dumps(plain(document))) == json.loads(path.with_suffix(".plain.json").read_text())
    assert encode(document) == data


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_document_of_an_old_format_is_refused_by_both_names(path: Path) -> None:
    written = format_of(path)
    kind = next(kind for name, kind in KINDS.items() if name.partition("/")[0] == written.partition("/")[0])
    with pytest.raises(Refused) as refused:
        decode(kind, path.read_bytes(), path.name)
    (finding,) = refused.value.findings
    assert finding.what == f"the document is {written!r}, this version reads {kind.FORMAT!r}"
    assert finding.then == "use the version of Coset that wrote it"


@pytest.mark.parametrize("current", sorted(KINDS))
def test_each_format_has_a_document_of_each_version(current: str) -> None:
    kind, version = current.split("/")
    wanted = {f"{kind}/{number}" for number in range(1, int(version) + 1)}
    assert wanted == {name for name in map(format_of, STORED) if name.partition("/")[0] == kind}


def test_files_are_named_after_their_formats() -> None:
    for path in STORED:
        kind, version = path.stem.split("-")
        assert format_of(path) == f"coset.{kind.partition('.')[0]}/{version}"
    assert {path.name.removesuffix(".plain.json") for path in FOLDER.glob("*.plain.json")} == {
        path.stem for path in CURRENT
    }


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.FORMAT)
def test_no_document_can_hold_a_number_whose_text_differs_between_languages_or_that_json_has_not(
    kind: type[Document],
) -> None:
    # A float has many texts, NaN has none, and anything may hold either.
    loose = {msgspec.inspect.FloatType, msgspec.inspect.AnyType, msgspec.inspect.RawType}
    assert loose.isdisjoint(types_in(msgspec.inspect.type_info(kind), set()))


def types_in(node: object, seen: set[int]) -> Iterator[type]:
    """The kinds of all types that a type is made of, as msgspec tells them."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple):
        for part in node:
            yield from types_in(part, seen)
    elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
        yield type(node)
        yield from types_in(tuple(getattr(node, name) for name in node.__struct_fields__), seen)
