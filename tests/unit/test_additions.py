"""What is added is known everywhere: to both implementations and to the pages, which say what real clients answered."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pyarrow as pa
import pytest
import typer

from coset.api import RunnerName
from coset.batches.runners.runner import RunnerKind
from coset.cli.main import app
from expectations import ExpectKeysToHashToTheirPartition
from expectations.colocation import FITS
from expectations.key_hashes import hashes_or_why
from partitioning.authoring import words
from partitioning.authoring.flow import Flow
from partitioning.hashes import hash_of
from partitioning.model.graph import Join, Missing
from partitioning.model.key_schemas import Framing
from partitioning.model.placement import (
    HASHES,
    ICEBERG,
    JAVA,
    JSON,
    KNOWN_HASHES,
    OPAQUE,
    HashName,
    KeyFormat,
    hash_findings,
    keeps_empty,
)
from partitioning.model.streams import Format, Layout, NullKeys
from partitioning.model.table_mode import CHANGELOG, Mode, Updates
from partitioning.model.watermarks import Late
from spark_jobs.engine.hashing import placement_hashes
from tests.model import explore, invariants, lasting
from tests.promises import CLASSES, MET, PAGE, PROMISES, page, there
from tests.specification.guards import GUARDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", [name for name in HASHES if name != OPAQUE])
def test_a_hash_places_keys_alike_one_by_one_and_all_at_once(name: str) -> None:
    texts = ["", "a", "N328AA", "Zürich", "polygenelubricants"]
    key_format, keys = ("long", [*range(5)]) if name == ICEBERG else ("string", texts)
    one_by_one = [hash_of(name, "here")(key, key_format) for key in keys]
    assert placement_hashes(pa.array(keys), key_format, name).tolist() == one_by_one


@pytest.mark.parametrize("name", HASHES)
def test_the_page_on_landed_files_names_each_hash(name: str) -> None:
    assert f"`{name}`" in _section("landed-files", "Columns")


@pytest.mark.parametrize("name", Format)
def test_the_pages_on_sources_name_each_format(name: Format) -> None:
    page = (
        (DOCS / "internals" / "kafka.md").read_text() if name is Format.BYTES else _section("landed-files", "Formats")
    )
    assert re.search(rf'`{name}`|format="{name}"', page)


def test_the_page_on_landed_files_names_each_layout_but_the_default() -> None:
    said = set(re.findall(r'layout="(\w+)"', _section("landed-files", "Layout")))
    assert said == set(Layout) - {Layout.PARTITION}


def test_type_checkers_know_each_word_that_an_option_takes() -> None:
    said: dict[type[StrEnum], Any] = {
        Join: words.How, NullKeys: words.NullKey, Updates: words.UpdateWay, Late: words.LateRecord,
        Format: words.FormatName, Missing: words.MissingVersion, Layout: words.LayoutName,
    }  # fmt: skip
    for kind, word in said.items():
        assert get_args(get_args(word)[1]) == tuple(kind)
    assert get_args(get_args(words.WriteMode)[1]) == (*Mode, CHANGELOG)
    assert get_args(get_args(words.KeyFormatName)[1]) == (*KeyFormat, JSON, *Framing)
    assert set(get_args(RunnerName)) == set(RunnerKind)


def test_the_pages_on_pipelines_and_runners_have_a_row_for_each() -> None:
    methods = inspect.getmembers(Flow, inspect.isfunction)
    steps = {
        name for name, each in methods if name[0] != "_" and each.__annotations__["return"] in ("Flow", "Self", "None")
    }
    assert set(re.findall(r"^\| `(\w+)\(", _section("pipelines", "Steps"), re.M)) == steps
    page = (DOCS / "internals" / "runners.md").read_text().partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z][a-z-]*)` \|", page, re.M)) == set(RunnerKind)


def test_a_page_names_each_command() -> None:
    pages = "".join(page.read_text() for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"coset {name}" not in pages and f"make {name}" not in pages] == []


def _section(page: str, heading: str) -> str:
    text = (DOCS / "internals" / f"{page}.md").read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("named", [r"(?s)\A(?=.*\bsessions?\b).*\bgap\b", r"(?i)few_?nulls|Kind\.NULLS"])
def test_an_option_of_a_step_and_an_expectation_stand_in_few_files(named: str) -> None:
    rooms = ("partitioning", "coset", "spark_jobs", "expectations")
    files = [file for room in rooms for file in (DOCS.parent / room).rglob("*.py")]
    assert 2 < sum(bool(re.search(named, file.read_text())) for file in files) < 6


TESTS = Path(__file__).parents[1]


def test_the_page_of_promises_is_what_its_command_writes_and_each_invariant_is_of_one() -> None:
    assert PAGE.read_text() == page()
    sources = "".join(Path(str(module.__file__)).read_text() for module in (explore, invariants, lasting))
    of_promises = Counter(name for _, _, names in PROMISES for name in names)
    assert of_promises == Counter(set(re.findall(r"\bi[1-9]_[a-z_]+", sources)))
    properties = {name for _, names, _ in PROMISES for name in names}
    specified = (TESTS / "specification" / "Batches.tla").read_text()
    assert {guarded.fails for guarded in GUARDS} <= properties
    assert all(f"\n{name} == " in specified for name in properties)


def test_all_classes_of_faults_have_a_test_that_is_there() -> None:
    assert len(CLASSES) == 38
    where, met = there(), json.loads(MET.read_text())
    assert [name for names in CLASSES.values() for name in names.split() if name not in where] == []
    assert [name for names in CLASSES.values() for name in names.split() if met[name].startswith("0,")] == []


ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "producers"
KEYS = [bytes.fromhex(line).decode() for line in (VECTORS / "keys.txt").read_text().split("\n")[:-1]]


def _rows() -> dict[tuple[str, ...], tuple[str, ...]]:
    """What the page says, by client, version and setting: the hash, and where records without and with an empty key
    lie."""
    lines = (ROOT / "docs" / "how-to" / "producers.md").read_text().split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    said = {tuple(cell.strip("`") for cell in row[:3]): tuple(row[3:]) for row in cells[2:]}
    assert len(said) == len(cells) - 2
    return said


ROWS = _rows()
ANSWERED: dict[tuple[str, ...], dict[str, Any]] = {
    (each["client"], each["version"], each["setting"]): each
    for each in map(json.loads, (VECTORS / "placements.jsonl").read_text().splitlines())
}
PLACED = [who for who in ANSWERED if not ROWS[who][0].startswith(f"`{OPAQUE}`")]


def test_the_page_on_producers_has_what_was_asked_and_a_client_for_each_hash() -> None:
    assert sorted(ROWS) == sorted(ANSWERED)
    # Samza's and Iceberg's are in their own vectors.
    assert {said.strip("`") for said, *_ in ROWS.values()} == {*set(HASHES) - {JAVA, ICEBERG, OPAQUE}, "opaque`, moved"}


@pytest.mark.parametrize("who", ANSWERED, ids=" ".join)
def test_the_page_says_where_each_client_puts_keys(who: tuple[str, ...]) -> None:
    answer, (said, without, empty) = ANSWERED[who], ROWS[who]
    assert without == ("anywhere" if answer["none"] is None else "one")
    assert {"anywhere": True, "hashed": False}[empty] is all(of[0] is None for of in answer["placed"].values())
    if who not in PLACED:
        assert all(place is None for of in answer["placed"].values() for place in of)
        return
    name = said.strip("`")
    assert keeps_empty(name) is (empty == "hashed")
    one_by_one = [hash_of(name, "here")(key, "string") for key in KEYS]
    assert placement_hashes(pa.array(KEYS), "string", name).tolist() == one_by_one
    assert hashes_or_why(KEYS, "string", name, "here") == one_by_one
    first = 0 if keeps_empty(name) else 1
    for count, places in answer["placed"].items():
        assert [h % int(count) for h in one_by_one[first:]] == places[first:]


@pytest.mark.parametrize("who", PLACED, ids=" ".join)
def test_whatever_is_declared_the_refusal_names_the_clients_hash(who: tuple[str, ...]) -> None:
    places = ANSWERED[who]["placed"]["12"]
    # An empty key that may lie anywhere lies here.
    frame = pd.DataFrame({"k": KEYS, "p": [5 if place is None else place for place in places]})
    right = HashName(ROWS[who][0].strip("`"))
    named = "crc32" if right.startswith("crc32") else right
    for declared in set(KNOWN_HASHES) - {right, named, ICEBERG}:
        assert not any(hash_findings(declared, "string", "here"))
        expectation = ExpectKeysToHashToTheirPartition(
            key_column="k", partition_column="p", partitions=12, hash=declared
        )
        assert expectation.answer("keys", frame).result["details"][FITS] == named
