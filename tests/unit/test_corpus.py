"""Documents that are stored somewhere mean what they meant when they were written, in whatever format that was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from partitioning.documents.document import canonical, decode, digest, digest_of, encode, plain
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.values import Document
from partitioning.version import VERSION
from tests.corpus import FOLDER, kinds
from tests.refused import finding_of

STORED = sorted(path for path in FOLDER.glob("*.json") if not path.name.endswith(".plain.json"))


KINDS = {kind.FORMAT: kind for kind in kinds()}


def format_of(path: Path) -> str:
    return str(json.loads(path.read_bytes())["format"])


CURRENT = [path for path in STORED if format_of(path) in KINDS]
OLD = [path for path in STORED if path not in CURRENT]


def kind_of(path: Path) -> type[Document]:
    """The kind of document that a file holds, in whatever version."""
    name = format_of(path).partition("/")[0]
    return next(kind for current, kind in KINDS.items() if current.partition("/")[0] == name)


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_a_document_says_what_it_said_when_it_was_written(path: Path) -> None:
    data = path.read_bytes()
    document = decode(KINDS[format_of(path)], data, path.name)
    assert json.loads(json.dumps(plain(document))) == json.loads(path.with_suffix(".plain.json").read_text())
    assert encode(document) == data


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_document_of_an_old_format_means_what_it_meant_and_keeps_its_identity(path: Path) -> None:
    data = path.read_bytes()
    document = decode(kind_of(path), data, path.name)
    assert digest(document) == json.loads(data)["digest"]
    meant = json.loads(path.with_suffix(".plain.json").read_text())
    del meant["format"]
    assert lacking(meant, json.loads(json.dumps(plain(document)))) == []


def lacking(meant: object, said: object, where: str = "") -> list[str]:
    """What of this plain data is not said; more may be said, as later versions know more."""
    if isinstance(meant, dict) and isinstance(said, dict):
        return [
            found
            for name, value in meant.items()
            for found in (lacking(value, said[name], f"{where}.{name}") if name in said else [f"{where}.{name}"])
        ]
    if isinstance(meant, list) and isinstance(said, list) and len(meant) == len(said):
        pairs = enumerate(zip(meant, said, strict=True))
        return [found for place, pair in pairs for found in lacking(*pair, f"{where}[{place}]")]
    return [] if meant == said else [f"{where}: {meant!r}, not {said!r}"]


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_document_with_a_byte_changed_is_refused(path: Path) -> None:
    data, kind = path.read_bytes(), kind_of(path)
    for place in range(0, len(data), 7):
        with pytest.raises(Refused):
            decode(kind, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], path.name)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_document_that_is_written_otherwise_is_refused(path: Path) -> None:
    otherwise = json.dumps(json.loads(path.read_bytes()), indent=1, sort_keys=True, ensure_ascii=False).encode()
    with pytest.raises(Refused, match="canonical form"):
        decode(kind_of(path), otherwise, path.name)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_what_was_read_in_an_old_format_is_not_written_in_another(path: Path) -> None:
    document = decode(kind_of(path), path.read_bytes(), path.name)
    with pytest.raises(ValueError, match="was read from an older format"):
        encode(document)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.FORMAT)
def test_a_newer_document_is_refused_with_what_to_do(kind: type[Document]) -> None:
    name, version = kind.FORMAT.split("/")
    newer = f"{name}/{int(version) + 1}"
    written = {"format": newer, "something": "new"}
    data = canonical(written | {"digest": digest_of(canonical(written))})
    finding = finding_of(decode, kind, data, "s3://coset/ads/document.json")
    assert finding.what == f"the document is {newer}, and this Coset, {VERSION}, reads up to {kind.FORMAT}"
    assert finding.where == "s3://coset/ads/document.json"
    assert finding.then == "use the version of Coset that wrote it, or a newer one; nothing was changed"


def test_a_newer_plan_says_which_version_wrote_it() -> None:
    name, version = Plan.FORMAT.split("/")
    written = {"format": f"{name}/{int(version) + 1}", "planner": "7.1.0"}
    data = canonical(written | {"digest": digest_of(canonical(written))})
    with pytest.raises(Refused) as refused:
        decode(Plan, data, "here")
    assert refused.value.findings[0].then == "use Coset 7.1.0, or a newer one; nothing was changed"


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
        path.stem for path in STORED
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
