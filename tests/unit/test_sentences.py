"""Sentences of the docs and of docstrings have few relative words: one idea each.

`python -m tests.unit.test_sentences` lists those that have too many; `python -m tests.unit.test_sentences 3` those with
three or more.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("partitioning", "coset", "spark_jobs", "expectations", "demo", "bench", "dags", "plugins")
# How many sentences may have so many relative words, or more. It may only go down.
ALLOWED = {3: 136, 4: 0}
_RELATIVE = re.compile(r"\b(which|that|who|whose|whom|what|whatever|whoever|where|wherever)\b", re.IGNORECASE)


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown or of a docstring, without its code. Cells of tables and items of lists are apart."""
    prose = re.sub(r"^ *```.*?^ *```|^ *>>> .*?(?=^ *$|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`]*`|<!--.*?-->", "_", prose, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )|\|", prose):
        yield from (found for each in re.split(r"(?<=[.!?:;])\s+", block) if (found := " ".join(each.split())))


def texts() -> Iterator[tuple[str, str]]:
    """Every text, with its place."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    for file in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
                yield f"{file.relative_to(ROOT)}: {getattr(node, 'name', 'the module')}", said


def long_winded(many: int) -> list[str]:
    """The sentences that have so many relative words, with their places."""
    return [
        f"{place}: {sentence}"
        for place, text in texts()
        for sentence in sentences(text)
        if len(_RELATIVE.findall(sentence)) >= many
    ]


@pytest.mark.parametrize("many", ALLOWED)
def test_no_more_sentences_than_before_have_many_relative_words(many: int) -> None:
    found = long_winded(many)
    assert len(found) <= ALLOWED[many], f"{len(found)} sentences; say those of yours in two:\n" + "\n".join(found)


def test_code_is_no_part_of_a_sentence_and_cells_and_items_are_apart() -> None:
    page = (
        "A file that is. One\n`that which` that who\n\n```\nwhat that\n```\n\n| that | which |\n- who\n- whose; what\n"
    )
    assert list(sentences(page)) == ["A file that is.", "One _ that who", "that", "which", "- who", "- whose;", "what"]
    assert list(sentences("Gives what.\n\n>>> what_that\n'which'\n\nMore that.")) == ["Gives what.", "More that."]


if __name__ == "__main__":
    print(*long_winded(int(sys.argv[1]) if sys.argv[1:] else max(ALLOWED)), sep="\n")
