"""The pages under docs/ say what is true: their examples run."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path

import pytest

from partitioning.kinds import Kind

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_the_examples_on_a_page_give_what_it_shows(page: str) -> None:
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.failed == 0
    assert found.attempted or ">>>" not in (DOCS / page).read_text()


def test_the_pages_on_cosets_and_plans_have_examples() -> None:
    assert all(">>>" in (DOCS / page).read_text() for page in ("cosets.md", "plans.md"))


def test_decisions_are_numbered_one_after_another_and_their_titles_carry_their_numbers() -> None:
    files = sorted((DOCS / "decisions").iterdir())
    assert [path.name[:5] for path in files] == [f"{number:04}-" for number in range(1, len(files) + 1)]
    untitled = {n: title for n, path in enumerate(files, 1) if not (title := _first_line(path)).startswith(f"# {n}. ")}
    assert untitled == {}


def test_links_to_decisions_carry_their_numbers() -> None:
    links = [
        (page.name, label, int(number))
        for page in DOCS.rglob("*.md")
        for label, number in re.findall(r"\[([^]]*?)\]\((?:decisions/)?([0-9]{4})-", page.read_text())
    ]
    assert [
        (page, label) for page, label, number in links if re.findall("[0-9]+", label) not in ([], [str(number)])
    ] == []
    assert any("ADR" in label for _, label, _ in links)


def _first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def test_the_page_of_findings_has_each_kind_with_its_cause_and_cure() -> None:
    path = DOCS / "findings.md"
    page = path.read_text()
    table = "".join(f"| `{kind.value}` | {kind.cause} | {kind.cure} |\n" for kind in Kind)
    head, rows = page.split("| --- | --- | --- |\n")
    if os.environ.get("COSET_REWRITE_GOLDEN") == "1":
        path.write_text(f"{head}| --- | --- | --- |\n{table}")
    assert rows == table, "COSET_REWRITE_GOLDEN=1 writes it anew"
