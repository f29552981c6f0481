"""The pages under docs/ say what is true: their examples run."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from coset.cli.main import app
from partitioning.errors import CosetError
from partitioning.kinds import Actor, Kind, actor
from partitioning.model.verdict import Outcome
from tests.corpus import kinds
from tests.offline_first import installing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
# What `coset init` writes; pages tell of that too.
STARTER = ROOT / "coset" / "cli" / "starter"
FOLDERS = ("partitioning", "coset", "spark_jobs", "expectations", "demo", "bench", "tests")


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_on_a_page_give_what_it_shows(page: str) -> None:
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.failed == 0
    assert found.attempted or ">>>" not in (DOCS / page).read_text()


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    broken = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")):
        for link, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", _prose(page)):
            target = page.parent / link if link else page
            if not target.exists() or (heading and heading not in _headings(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}#{heading}")
    assert broken == []


def test_the_index_names_each_page_with_the_question_that_opens_it() -> None:
    listed = r"^\| \[.*?\]\(((?:guide|how-to|internals)/.*?\.md)\) \| (.*?) \|$"
    named = dict(re.findall(listed, (DOCS / "README.md").read_text(), re.M))
    pages = {page for page in PAGES if page.startswith(("guide/", "how-to/", "internals/"))}
    assert set(named) == pages
    assert [page for page in sorted(pages) if not (DOCS / page).read_text().split("\n\n")[1].startswith("*")] == []


def test_the_pages_have_no_more_words_than_before() -> None:
    """The bound may only go down: whoever adds words cuts as many."""
    assert sum(len((DOCS / page).read_text().split()) for page in PAGES) <= 54_000
    assert sum(page.startswith("guide/") for page in PAGES) <= 12
    assert sum(page.startswith("internals/") for page in PAGES) <= 15


def _prose(page: Path) -> str:
    """The page without its code, in which brackets mean other things."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))


def _headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_pages_on_cosets_and_plans_have_examples() -> None:
    assert all(">>>" in (DOCS / page).read_text() for page in ("internals/cosets.md", "internals/plans.md"))


def test_decisions_have_numbers_of_their_own_and_their_titles_carry_them() -> None:
    titled = [(int(path.name[:4]), _first_line(path)) for path in sorted((DOCS / "decisions").iterdir())]
    assert len({number for number, _ in titled}) == len(titled)
    assert [title for number, title in titled if not title.startswith(f"# {number}. ")] == []


def test_links_to_decisions_carry_their_numbers() -> None:
    links = [
        (page.name, label, int(number))
        for page in DOCS.rglob("*.md")
        for label, number in re.findall(r"\[([^]]*?)\]\((?:(?:\.\./)?decisions/)?([0-9]{4})-", page.read_text())
    ]
    assert [
        (page, label) for page, label, number in links if re.findall("[0-9]+", label) not in ([], [str(number)])
    ] == []
    assert any("ADR" in label for _, label, _ in links)


def test_the_files_and_names_that_the_page_for_contributors_tells_of_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    files = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page))
    assert len(files) > 30
    assert len(page.split()) <= 1200
    assert [file for file in files if not _files(file)] == []
    named = re.findall(r"`(\w+)` in `([a-z_/]+\.py)`", page)
    assert len(named) > 5
    defined = r"^ *(?:def |class |){}\b"
    assert [
        (name, file)
        for name, file in named
        if not any(re.search(defined.format(name), path.read_text(), re.M) for path in _files(file))
    ] == []


def test_the_files_that_pages_tell_of_are_there() -> None:
    missing = [
        f"{page}: {name}"
        for page in PAGES
        for name in re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`", (DOCS / page).read_text())
        if not page.startswith("decisions/") and not _files(name) and not (STARTER / f"{name}.txt").is_file()
    ]
    assert missing == []


def _files(name: str) -> list[Path]:
    """The files that a page means: by a path from the root, or the core; by a name alone those of any folder."""
    if "/" in name:
        return [path for path in (ROOT / name, ROOT / "partitioning" / name) if path.is_file()]
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob(name)]


def _first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def test_the_page_of_findings_has_each_kind_with_its_cause_and_cure() -> None:
    path = DOCS / "internals" / "findings.md"
    page = path.read_text()
    table = ""
    for each in Actor:
        rows = (f"| `{kind.value}` | {kind.cause} | {kind.cure} |" for kind in Kind if actor(kind) is each)
        table += "\n".join((f"| *{each}* | | |", *rows, ""))
    head, found = page.split("| --- | --- | --- |\n")
    if os.environ.get("COSET_REWRITE_GOLDEN") == "1":
        path.write_text(f"{head}| --- | --- | --- |\n{table}")
    assert found == table, "COSET_REWRITE_GOLDEN=1 writes it anew"


def test_the_page_for_who_is_called_has_each_actor_and_each_error_has_an_exit_code_that_is_explained() -> None:
    on_call = (DOCS / "guide" / "operating.md").read_text()
    assert re.findall(r"^\| \*(\w+)\* \|", on_call, re.M) == list(Actor)
    exits = (DOCS / "guide" / "environments.md").read_text().partition("## Exit codes")[2]
    errors = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", exits, re.M))
    public = [error for error in _below(CosetError) if not error.__name__.startswith("_")]
    assert errors == {str(error.exit_code): error.__name__ for error in public}
    told = {int(code) for cell in re.findall(r"^\| ([\d, ]+) \|", exits, re.M) for code in cell.split(",")}
    assert told >= {outcome.exit_code for outcome in Outcome}


def _below(error: type[CosetError]) -> list[type[CosetError]]:
    return [each for child in error.__subclasses__() for each in (child, *_below(child))]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_options_that_a_page_names_are_there(page: str) -> None:
    assert [line for line in _commands((DOCS / page).read_text()) if not _there(line)] == []


def test_the_changelog_names_the_commands_of_its_version_and_the_formats_of_documents() -> None:
    changes = (DOCS / "how-to" / "backups.md").read_text().partition("## Changelog")[2]
    new = {"forget", "hand-over", "accept-changes", "restore"}
    assert {line.split()[1] for line in _commands(changes)} >= new
    assert {"--take-away", "--begin-anew", "--go-on", "--json"} <= set(re.findall("--[a-z-]+", changes))
    formats = {kind.FORMAT.removeprefix("coset.") for kind in kinds()}
    assert formats <= set(re.findall("[a-z]+/[0-9]+", changes))


def _commands(page: str) -> list[str]:
    """Lines and code in sentences that begin as a command does."""
    fenced = r"^```\w*\n(.*?)^```"
    code = [line for block in re.findall(fenced, page, re.M | re.S) for line in block.splitlines()]
    code += re.findall(r"`([^`]+)`", re.sub(fenced, "", page, flags=re.M | re.S))
    return [line for line in code if re.match(r"(?:\$ |\.venv/bin/)?coset [a-z-]", line)]


def _there(line: str) -> bool:
    words = line.partition(" # ")[0].removeprefix("$ ").split()[1:]
    group: Any = typer.main.get_command(app)
    chosen = group if words[0].startswith("-") else group.commands.get(words[0])
    options = {name for parameter in (chosen.params if chosen else ()) for name in parameter.opts}
    asked = {word.partition("=")[0].rstrip(",") for word in words if word.startswith("--")}
    return chosen is not None and asked <= options | {"--help"}


@pytest.mark.long
def test_the_site_of_the_docs_is_built_without_a_warning(tmp_path: Path) -> None:
    done = installing(["make", "docs", f"SITE={tmp_path}"], ROOT)
    assert done.returncode == 0, done.stderr
    for page in ("README", "CONTRIBUTING", *(f"docs/{page.removesuffix('.md')}" for page in PAGES)):
        assert (tmp_path / f"{page}.html").is_file()
    assert 'url=docs/README.html"' in (tmp_path / "index.html").read_text()
    index = (tmp_path / "docs" / "README.html").read_text()
    assert [
        page for page in PAGES if page != "README.md" and f'href="{page.removesuffix(".md")}.html"' not in index
    ] == []
    assert "backfill" in (tmp_path / "searchindex.js").read_text()
