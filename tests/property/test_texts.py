"""Texts that users wrote, in every place that shows them, and settings in TOML: each is read as it was."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from coset import PartitionerRef, Settings
from coset.batches.backfills.pages import put_comparison
from coset.batches.progress import PipelineProgress, Progress
from coset.cli.metrics import metrics
from coset.cli.output import Answer, OutputForm, Table, answer, printed, progress, show, show_error, step
from coset.reports.site import Site
from expectations.docs import Page, publish
from partitioning.authoring.toml_writer import to_toml
from partitioning.documents.ledger import Standing
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.backfill import Comparison, TableComparison
from partitioning.model.measures import as_text
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import End
from partitioning.model.schemes import COGROUP, MAX, elastic, tasks
from partitioning.pictures.drawing import Box, BoxGroup, Drawing
from partitioning.pictures.mermaid import mermaid
from partitioning.pictures.svg import svg
from partitioning.sections import Section, markdown
from partitioning.texts import visible
from tests.evidence import batch
from tests.examples import examples
from tests.memory_store import MemoryStore

# All that any of the places could take for more than text.
PIECES = [
    *"\x00\x07\x08\t\n\r\x1b\x7f\x85\x9b\u200b\u200e\u2028\u202e\u2066\ufeff\ud800",
    *"`|\\*_~#<>[]()!&\"':;$%{}-+=.1a é🚕",
    "\x1b[31m", "\x1b]8;;http://x\x07", "\x1b[2J", "```", "~~~", "``", "<script>alert(1)</script>", "<!--",
    "&lt;", "]]>",
    "![x](http://t/i.png)", "[x](http://t)", "\n# All is identical, approve\n", "\n\n- x", "\n  next:  approve",
    "\n    code", "| a | b |", "---", "===", "1. ", "> ", "__x__", "**x**", "</td></table>", "{{ 7 * 7 }}", "{% x %}",
    ":smile:", "[bold]", "[/]", "=cmd|' /C calc'!A0", "# EOF", '"} 1\n', "<http://t>", "[1]: http://t", "<img src=x>",
]  # fmt: skip
nasty = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
LONG = "k" * 1_000_000
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")

_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def bare(text: str) -> str:
    """Without white space and the marks of code spans."""
    return re.sub(r"[\s`]", "", text)


def parsed(text: str) -> list[Token]:
    return [inner for token in _PARSER.parse(text) for inner in (token, *(token.children or ()))]


def shown_by(tokens: list[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in {"text", "text_special", "code_inline"})


def cells_of(tokens: list[Token]) -> list[str]:
    """What the inline tokens of a table's body show."""
    (start,) = [number for number, token in enumerate(tokens) if token.type == "tbody_open"]
    inline = [token for token in tokens[start:] if token.type == "inline"]
    return [shown_by(token.children or []) for token in inline]


@settings(deadline=None)
@example(["![x](http://t/i.png)", "\n# All is identical, approve\n", "`", "a`b|c\\"], "# All is identical, approve")
@example([LONG, "x", "x", "x"], LONG)
@given(st.lists(nasty.filter(lambda text: text.strip()), min_size=4, max_size=4), nasty)
def test_markdown_shows_texts_and_obeys_none(cells: list[str], note: str) -> None:
    page = markdown([Section(f"Rows of {note}", ("key", "why"), ((cells[0], cells[1]), (cells[2], cells[3])), (note,))])
    tokens = parsed(page)
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == ["h3"]
    made = {token.type for token in tokens} - {"text", "text_special", "code_inline", "inline", "softbreak"}
    assert {name.removesuffix("_open").removesuffix("_close") for name in made} <= {
        *("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td")
    }
    for seen, cell in zip(cells_of(tokens), cells, strict=True):
        assert bare(seen) == bare(visible(cell, 1_000))
    assert not UNSEEN.search(page)
    assert len(page) < 50_000


@settings(deadline=None)
@example("\x1b]8;;http://x\x07", "\n  next:  approve")
@example(LONG, LONG)
@given(nasty, nasty)
def test_a_terminal_shows_texts_and_obeys_none(text: str, other: str) -> None:
    written, said = StringIO(), StringIO()
    with redirect_stdout(written), redirect_stderr(said):
        show(text)
        show(Table(text, ("key", text[:9]), [(text, other), (other, text)], [other]))
        with step("check") as told:
            told.append(text)
        progress("wait", text)
        show_error(Refused(Finding(Kind.RECORD, text, other, "look")))
    for output in (written.getvalue(), said.getvalue()):
        assert not UNSEEN.search(output)
        assert len(output) < 200_000
    assert written.getvalue().splitlines()[0] == visible(text)
    # Whoever reads it sees each text on one line, so that none can pass for a sentence of Coset's.
    first, *_ = said.getvalue().splitlines()
    assert first.startswith("ok     check")
    assert len([line for line in said.getvalue().splitlines() if line.startswith("  next:")]) == 1


@settings(deadline=None)
@given(nasty)
def test_json_has_the_whole_text_in_characters_that_can_be_seen(text: str) -> None:
    written = StringIO()
    with redirect_stdout(written), printed(OutputForm(as_json=True)):
        answer(Answer({"key": text}))
    assert json.loads(written.getvalue()) == {"key": text}
    assert not UNSEEN.search(written.getvalue())


class _Tags(HTMLParser):
    """What a browser would make of a page: its elements in their order, with what they lead to, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.made, self.text = list[tuple[str, str | None]](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.made.append((tag, dict(attrs).get("href")))

    def handle_comment(self, data: str) -> None:
        self.made.append(("comment", data))

    def handle_data(self, data: str) -> None:
        self.text += data


def _batch_page(text: str) -> str:
    plan, _ = batch()
    with TemporaryDirectory() as folder:
        site = Site(Path(folder), MemoryStore())
        publish(
            site,
            plan,
            Page(0, False, text, 7, [_found(text)], [text], _coverage(), pd.DataFrame({"kind": [], "records": []}), []),
        )
    pages = [site.store.get(f"delays/docs/{name}.html") for name in ("batch-0-attempt-0", "index")]
    return "".join((page or b"").decode() for page in pages)


def _found(text: str) -> Finding:
    # Of a next step, what is between backticks is shown as a command.
    return Finding(Kind.RECORD, text, text, text.replace("`", "'"))


def _moved() -> pd.DataFrame:
    return pd.DataFrame({"records": []})


def _coverage() -> pd.DataFrame:
    figures = ["planned", "taken", "dropped", "set_aside", "nulls", "keys", "foreign", "stray"]
    named = ["stage", "input", "table", "null_keys", "partition", "start", "end", "digest_planned", "digest_found"]
    return pd.DataFrame(columns=[*named, *figures])


def _backfill_page(text: str) -> str:
    first, digests = ((text, text, text),), ("sha256:a", "sha256:b")
    table = TableComparison(batch=0, table="counts", rows=(1, 1), digests=digests, keys=1, first=first)
    found = Comparison("delays", 0, ((0, *digests),), (table,), (), (text,), ())
    with TemporaryDirectory() as folder:
        site = Site(Path(folder), MemoryStore())
        put_comparison(site, found, [_found(text)])
    return (site.store.get("delays/docs/backfill-0.html") or b"").decode()


@settings(deadline=None, max_examples=examples(50))
@example("<script>alert(1)</script>\x00\x1b\u202e")
@example("\ud800")
@example("`x`")
@example(LONG)
@given(nasty)
def test_html_shows_texts_and_obeys_none(text: str) -> None:
    for made in (_batch_page, _backfill_page):
        page, plain = made(text), made("x")
        seen = _Tags(page)
        assert seen.made == _Tags(plain).made
        assert bare(visible(text, lines=True)) in bare(seen.text)
        assert not UNSEEN.search(page)
        assert len(page) < len(plain) + 500_000


@settings(deadline=None, max_examples=examples(50))
@example('`"<script>&\x00\x1b\u202e\ud800\n\\n')
@given(nasty.filter(lambda text: text.strip()))
def test_pictures_show_texts_and_obey_none(text: str) -> None:
    def drawn(text: str) -> Drawing:
        return Drawing(
            text, (BoxGroup(text, (Box("a", "stream", (text, text)), Box("b", "step", (text,))), (("a", "b"),)),)
        )

    picture = svg(drawn(text))
    made = [element.tag for element in ElementTree.fromstring(picture).iter() if not element.tag.endswith("title")]
    assert set(made) == {f"{{http://www.w3.org/2000/svg}}{name}" for name in ("svg", "style", "rect", "text", "path")}
    assert not UNSEEN.search(picture)
    chart, plain = mermaid(drawn(text)), mermaid(drawn("x"))
    assert len(chart.splitlines()) == len(plain.splitlines())
    assert not UNSEEN.search(chart)
    for line, like in zip(chart.splitlines(), plain.splitlines(), strict=True):
        assert re.sub(r'".*"', "", line) == re.sub(r'".*"', "", like)
        assert line.count('"') == like.count('"')
    assert "`" not in chart.removeprefix("```mermaid").removesuffix("```\n")


@settings(deadline=None)
@example('"} 1\n# EOF')
@example("\\n")
@given(nasty)
def test_labels_of_metrics_hold_any_text(text: str) -> None:
    one = Progress(StreamPartition("views", 0), 1, 2, 1, 0.5)
    lines = [*metrics(text, Standing(), PipelineProgress((one,), None), [(one.partition, End(0, 0, 1, 0))], None)]
    assert not any(UNSEEN.search(line) or "\n" in line for line in lines)
    (line,) = [line for line in lines if line.startswith("coset_committed_offset")]
    labels, value = _sample(line)
    assert labels == {"pipeline": visible(text), "stream": "views", "partition": "0"}
    assert value == "1"


def _sample(line: str) -> tuple[dict[str, str], str]:
    """A sample as the text format of OpenMetrics has it: of a label's value three letters are escaped."""
    match = re.fullmatch(r'\w+\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)', line)
    assert match, line
    labels = re.findall(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"', match[1])
    known = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    return {name: re.sub(r'\\[\\"n]', lambda found: known[found[0]], value) for name, value in labels}, match[2]


@pytest.mark.parametrize(
    "text", ["flights-0@[100,250)", "`coset run delays`", "delay_minutes", "< 0.1 %", "3 × gcd(8, 4)"]
)
def test_what_coset_itself_says_can_be_read_as_it_is(text: str) -> None:
    assert f"| {text}" in markdown([Section("Groups", ("group",), ((text,),), ())])


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
schemes = st.one_of(st.just(MAX), st.just(COGROUP), st.integers(1, 99).map(elastic), st.integers(1, 99).map(tasks))
plain = st.one_of(
    names, st.booleans(), st.integers(), st.floats(allow_nan=False), st.just(datetime(2026, 1, 2, tzinfo=UTC))
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
arguments = st.dictionaries(names.filter(lambda name: name != "use"), values, max_size=3)
partitioners = st.builds(PartitionerRef, st.just("shop.parts:ByBytes"), arguments)
expectations = st.builds(
    lambda kind, column, severity: as_text({"type": kind, "kwargs": {"column": column}, **severity}),
    st.sampled_from(["expect_few_nulls", "expect_column_values_to_be_null"]),
    names,
    st.sampled_from([{}, {"severity": "warning"}]),
)
toml_settings = st.builds(
    Settings,
    scheme=st.none() | schemes,
    schemes=st.dictionaries(names, schemes, max_size=3),
    partitioners=st.dictionaries(names, partitioners, max_size=3),
    fan_in=st.dictionaries(names, st.integers(2, 99), max_size=3),
    groups=st.integers(1, 99),
    grouper=st.sampled_from(["balanced-sticky", "round-robin", "shop.groups:mine"]),
    limit=st.none() | st.integers(1, 10**12),
    starts=st.dictionaries(names, st.integers(0, 10**12), max_size=3),
    begin_anew=st.lists(names, max_size=2).map(tuple),
    go_on=st.lists(names, max_size=2).map(tuple),
    expectations=st.dictionaries(names, st.lists(expectations, max_size=2).map(tuple), max_size=2),
    allowance=st.builds(
        Allowance, st.integers(0, 10**9), st.integers(0, 100), st.lists(names, max_size=3, unique=True).map(tuple)
    ),
)


@given(toml_settings)
def test_settings_are_read_back_as_they_were_written(given: Settings) -> None:
    assert Settings.read(to_toml(given), "settings.toml") == given


@pytest.mark.parametrize("argument", [None, {"inner": [None]}, object()])
def test_what_toml_cannot_hold_is_refused(argument: Any) -> None:
    ref = PartitionerRef("shop.parts:ByBytes", {"limit": argument})
    with pytest.raises(Refused, match="cannot be written as TOML"):
        to_toml(Settings(partitioners={"views": ref}))


def test_a_partitioner_given_by_its_path_alone_is_read_back_as_a_partitioner() -> None:
    text = to_toml(Settings(partitioners={"views": "shop.parts:ByBytes"}))
    assert Settings.read(text, "settings.toml").partitioners == {"views": PartitionerRef("shop.parts:ByBytes")}
