"""What is added is known everywhere: a hash to both implementations, the rest to the pages that list it."""

from __future__ import annotations

import inspect
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
import typer

from coset.api import RunnerName
from coset.batches.runners.choice import RunnerKind
from coset.cli.main import app
from partitioning.authoring import words
from partitioning.authoring.change_sql import CHANGELOG
from partitioning.authoring.flow import Flow
from partitioning.hashes import hash_of
from partitioning.model.graph import Join, Missing, Mode, Updates
from partitioning.model.key_schemas import Framing
from partitioning.model.placement import HASHES, ICEBERG, JSON, OPAQUE, KeyFormat
from partitioning.model.streams import Format, Layout, NullKeys
from partitioning.model.watermarks import Late
from spark_jobs.engine.hashing import placement_hashes

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


def test_the_page_on_pipelines_has_a_row_for_each_step() -> None:
    methods = inspect.getmembers(Flow, inspect.isfunction)
    steps = {
        name for name, each in methods if name[0] != "_" and each.__annotations__["return"] in ("Flow", "Self", "None")
    }
    assert set(re.findall(r"^\| `(\w+)\(", _section("pipelines", "Steps"), re.M)) == steps


def test_the_page_on_runners_has_a_row_for_each() -> None:
    page = (DOCS / "internals" / "runners.md").read_text()
    assert set(re.findall(r"^\| `([a-z][a-z-]*)` \|", page, re.M)) == set(RunnerKind)


def test_a_page_names_each_command() -> None:
    pages = "".join(page.read_text() for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"coset {name}" not in pages and f"make {name}" not in pages] == []


def _section(page: str, heading: str) -> str:
    text = (DOCS / "internals" / f"{page}.md").read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
