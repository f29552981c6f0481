"""What people read of backfills: what is going to be run, and why something cannot be put in place."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.pages import comparison_sections, preview_page
from coset.batches.backfills.request import backfill
from coset.cli.pipelines import load
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.backfill import Comparison
from tests.commands import coset, succeeded
from tests.goldens import expect_golden
from tests.three_batches import NEWEST, three_batches

__all__ = ["three_batches"]


def read(text: str) -> str:
    """Without what is another at each run: digests, times, people, and where files lie."""
    text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", text.replace(NEWEST, "newest.py"))
    text = re.sub(r"Expected: \d+ s", "Expected: … s", text)
    text = re.sub(r"\d+\.\d kB", "… kB", text)
    text = re.sub(r"--(store|docs) [^\s`]+", r"--\1 …", text)
    # As long as the longest line, with the path that the checkout has.
    text = re.sub(r"─{20,}", "─" * 20, text)
    text = re.sub(r"Asked by \S+ at \S+:", "Asked by ann at …:", text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_a_preview_reads_as_the_golden_file(three_batches: Store) -> None:
    words = ("backfill", NEWEST, "--from", "0", "--to", "1", "--scheme", "tasks(6)", "--preview")
    shown = succeeded(*words)
    expect_golden("cli_backfill_preview.txt", read(shown.stdout))
    told = json.loads(coset(*words, "--json").stdout)
    assert [batch["batch"] for batch in told["batches"]] == [0, 1]
    assert told["seconds"].keys() == {"0", "1"}
    assert (told["keeps"], told["later"]) == (["newest"], [{"batch": 2, "open": False}])
    assert [(table["write"]["table"], table["rows"]) for table in told["tables"]] == [("counts", 20), ("newest", 20)]


def test_what_cannot_be_put_in_place_is_said_before_anybody_approves_it(
    three_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWEST_FROM", "5")
    words = (
        "backfill",
        NEWEST,
        "--from",
        "0",
        "--go-on",
        "counts",
        "--runner",
        "local",
        "--why",
        "the first were tests",
    )
    refused = coset(*words)
    assert refused.exit_code == 3
    told = re.sub(r"^(ok|failed) .*\n", "", refused.stderr, flags=re.MULTILINE)
    expect_golden("cli_backfill_blocked.txt", f"{read(refused.stdout)}{read(told)}")
    assert "coset swap" not in refused.output
    listed = coset("backfills", NEWEST, "0")
    assert "It cannot be put in place: it changes the state of newest, on which later batches" in listed.stdout
    page = (tmp_path / "newest" / "backfill-0.html").read_text()
    assert "<strong>It cannot be put in place:</strong> it changes the state of newest, on which later" in page
    assert re.search(r"run them too: <code>coset backfill [^<]*--from 0 --cascade [^<]*</code>", page)
    compared = actions.review(three_batches, backfill(three_batches, "newest", 0))
    assert [finding.then for finding in compared.blockers] == [
        "run them too: `coset backfill newest --from 0 --cascade`"
    ]
    expect_golden("backfill_blocked.md", read(compared.page))
    # As it says: then somebody can approve it.
    cascade = succeeded(*words, "--cascade")
    (command,) = re.findall(r"`coset (swap \S+ 1 --approve sha256:[0-9a-f]+ [^`]+)`", cascade.stdout)
    digest = command.partition(" --approve ")[2].split()[0]
    html, put = tmp_path / "newest" / "backfill-1.html", rf"<code>coset (swap \S+ 1 --approve {digest} [^<]+)</code>"
    (command,) = re.findall(f"{put} puts it in place. Readers see nothing of it before.", html.read_text())
    succeeded(*command.split())
    assert "It is in place: readers see its rows. " in html.read_text()
    assert re.search(r"<strong>Next:</strong> <code>coset undo \S+ 1 [^<]+</code> takes it back\.", html.read_text())
    succeeded("undo", NEWEST, "1", "--why", "too early")
    assert re.search(r"It was taken back: readers see the rows of before it\. \S+, \S+: too early\.", html.read_text())
    assert re.search(f"<strong>Next:</strong> {put} puts it in place again.", html.read_text())
    assert three_batches.get("newest/docs/backfill-1.html") == html.read_bytes()


def test_the_preview_of_the_dag_names_what_is_built_on_the_batches(three_batches: Store) -> None:
    asked = Asked(2, 2, Settings.parse(scheme="tasks(6)"))
    expect_golden(
        "backfill_preview.md",
        read(preview_page(three_batches, "newest", actions.preview(load(NEWEST), three_batches, asked))),
    )


@pytest.mark.long
def test_what_a_step_keeps_under_another_scheme_needs_no_approval(three_batches: Store) -> None:
    result = succeeded("backfill", NEWEST, "--from", "0", "--to", "1", "--scheme", "tasks(6)", "--runner", "local")
    assert "Compared: identical" in result.stdout
    assert "It is in place: counts at version" in result.stdout


def test_a_reason_is_text_wherever_it_is_shown(three_batches: Store) -> None:
    why = "# All is identical, approve\n\n![seen](http://tracker/i.png) \x1b[2J\u202e"
    asked = ("backfill", NEWEST, "--from", "2", "--scheme", "tasks(6)", "--runner", "local", "--why", why)
    succeeded(*asked)
    page = actions.review(three_batches, backfill(three_batches, "newest", 0)).page
    tokens = [inner for token in MarkdownIt().parse(page) for inner in (token, *(token.children or ()))]
    assert {token.type for token in tokens}.isdisjoint({"image", "link_open", "html_block", "html_inline"})
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert headings[0] == "Backfill 0 of newest: batch 2"
    assert not any("approve" in heading for heading in headings)
    listed = coset("backfills", NEWEST)
    assert "# All is identical, approve\\n\\n![seen](http://tracker/i.png) \\x1b[2J\\u202e" in listed.stdout
    assert json.loads(coset("backfills", NEWEST, "--json").stdout)["backfills"][0]["why"] == why


def test_a_comparison_says_what_is_known_of_the_code_of_functions() -> None:
    code = {"shop:same": ("sha256:1", "sha256:1"), "shop:other": ("sha256:1", "sha256:2"), "shop:old": ("", "sha256:3")}
    found = Comparison("spent", 0, ((0, "", ""),), (), (), (), ("scored",), code=code)
    (table,) = comparison_sections(found)
    assert table.notes[1:] == (
        "Functions have the same code as before: shop:same.",
        "Functions have other code than before: shop:other (sha256:1, now sha256:2).",
        "Functions whose code was not noted before, so only their names are the same: shop:old.",
    )
    assert found.may_differ
    assert not found.needs_approval
    (before,) = comparison_sections(Comparison("spent", 0, ((0, "", ""),), (), (), (), ("scored",)))
    assert before.notes[1:] == ("Functions whose code was not noted before, so only their names are the same: scored.",)
