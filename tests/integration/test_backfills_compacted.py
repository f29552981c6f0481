"""Backfills of batches that lie otherwise now, compacted or repaired: they work, or not, and people read why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from markdown_it import MarkdownIt

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.outlook import gaps
from coset.batches.backfills.pages import comparison_sections, preview_page
from coset.batches.backfills.request import backfill
from coset.batches.interpreter import silently
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.batches.tables.acceptance import accept
from coset.batches.tables.compaction import compact
from coset.cli.pipelines import load
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.backfill import Backfill, Comparison
from partitioning.sections import markdown
from tests.backfilled import Batches, Rows, appended, counted, run_again, stored
from tests.begun import Begun
from tests.commands import coset, succeeded
from tests.goldens import expect_golden
from tests.landed import land_file
from tests.logs import log_of
from tests.running import next_batch, run_and_publish
from tests.sparse import counted as counted_sparse
from tests.sparse import land, published
from tests.three_batches import NEWEST, three_batches

NOW = timedelta(0)


def two_batches(store: Store, docs: Path, mode: WriteMode = "append") -> Batches:
    history = Batches(store, docs, pipeline=lambda threshold: appended(threshold, mode))
    for number in range(2):
        history.batch(number)
    return history


def table(store: Store, name: str = "counts") -> DeltaTable:
    return log_of(store, name)


def optimized_by_others(store: Store) -> None:
    table(store).optimize.compact()
    table(store).vacuum(0, dry_run=False, enforce_retention_duration=False)


def refused_before_anything_runs(history: Batches, *parts: str) -> None:
    before = stored(history.store)
    with pytest.raises(Refused) as refused:
        history.backfilled(Asked(0, 1, Settings()), threshold=5)
    for part in parts:
        assert part in str(refused.value)
    assert stored(history.store) == before


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_compacted_batches_are_compared_and_swapped_when_their_first_files_are_gone(
    mode: WriteMode, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path, mode)
    before: Rows = history.seen()
    # What the first takes away, the second removes.
    for _ in range(2):
        compact(appended(0, mode)(f"{store.root}/topics", 4), store, NOW)
    assert not [entry for entry in store.list("tables/counts/data/plan-0/attempt-") if entry.size]
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=13)
    found = actions.comparison(store, backfill)
    # Of a replaced table nobody sees the rows of batch 0, and they are gone.
    assert [(one.batch, one.rows) for one in found.tables] == [(0, (9, 0)), (1, (9, 6))][
        -1 if mode == "replace" else 0 :
    ]
    actions.swap(store, backfill, digest(found), "")
    assert history.seen() == [row for row in before if int(str(row[2])) >= 13]


def test_rows_that_others_put_together_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    before = history.seen()
    optimized_by_others(store)
    refused_before_anything_runs(history, "took it out: OPTIMIZE, at ", "into another table")
    assert history.seen() == before


def updated(log: DeltaTable) -> object:
    return log.update(updates={"n": "n"}, predicate="true")


CHANGES: dict[str, tuple[str, Callable[[DeltaTable], object]]] = {
    "a deletion": ("version 3 took it out: DELETE, at ", lambda log: log.delete("true")),
    "an update": ("version 3 took it out: UPDATE, at ", updated),
    "a table as it was": ("version 3 took it out: RESTORE, at ", lambda log: log.restore(0)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_others_did_to_rows_is_told_as_the_log_has_it_and_may_be_taken_back(
    case: str, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path)
    before, (says, change) = history.seen(), CHANGES[case]
    change(table(store))
    refused_before_anything_runs(
        history,
        says,
        "take it back: `from deltalake import DeltaTable; DeltaTable(",
        ".restore(2)`; or else run the pipeline",
    )
    accept(store, "counts", 3, who="me", why="it is to stay")
    refused_before_anything_runs(history, says, ".restore(2)`")
    table(store).restore(2)
    assert history.seen() == before
    history.backfilled(Asked(0, 1, Settings()), threshold=5)


def test_a_file_is_not_explained_by_what_the_log_has_lost(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    table(store).delete("true")
    table(store).create_checkpoint()
    store.delete("tables/counts/_delta_log/00000000000000000003.json")
    refused_before_anything_runs(history, "its log does not say any more what took it out")


def test_rows_that_were_put_together_meanwhile_are_told(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    optimized_by_others(store)
    with pytest.raises(Refused, match="took it out: OPTIMIZE"):
        actions.comparison(store, backfill)


def test_a_replaced_table_may_be_put_together_by_anybody(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path, "replace")
    optimized_by_others(store)
    backfill = history.backfilled(Asked(1, 1, Settings()), threshold=13)
    found = actions.comparison(store, backfill)
    assert [one.rows for one in found.tables] == [(9, 6)]
    actions.swap(store, backfill, digest(found), "")
    assert [row[2] for row in history.seen()] == [13, 14, 15, 16, 17, 18]


def test_a_table_that_was_deleted_is_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=counted)
    for number in range(2):
        history.batch(number)
    for entry in list(store.list("tables/")):
        store.delete(entry.key)
    gone = (f"{store.root}/tables/counts", f"{store.root}/tables/newest")
    refused_before_anything_runs(history, "the table is gone", *gone)


def test_files_that_are_lost_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    (lost, *_) = [entry.key for entry in store.list("tables/counts/data/plan-1/") if entry.size]
    store.delete(lost)
    refused_before_anything_runs(history, "the file is missing", f"{store.root}/{lost}")


def test_what_others_did_before_a_swap_is_not_taken_back_by_restoring_the_table(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path, "append")
    write_deltalake(table(store), table(store).to_pyarrow_table().slice(0, 1), mode="append")
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    with pytest.raises(Refused, match="version 3 of the table is not by pipeline 'kept': WRITE") as refused:
        history.batch(2)
    (finding,) = refused.value.findings
    assert finding.then.startswith("`coset accept-changes counts --up-to 4 ")


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_an_undo_whose_files_are_gone_says_how_its_rows_are_made_again(
    mode: WriteMode, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path, mode)
    before: Rows = history.seen()
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    # What the first takes away, the second removes.
    for _ in range(2):
        compact(appended(0, mode)(f"{store.root}/topics", 4), store, NOW)
    with pytest.raises(Refused) as refused:
        actions.undo(store, backfill, "")
    then = "leave what readers see; or make its rows again with the pipeline as it was before"
    assert {finding.then for finding in refused.value.findings} == {f"{then}: `coset backfill kept --from 0 --to 1`"}
    # As it says.
    again = history.backfilled(Asked(0, 1, Settings()))
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert history.seen() == before


LOST = Settings.parse(accept_loss=["views-0@[4,12)"])


@pytest.fixture
def two_sparse_batches(begun: Begun) -> Store:
    return begun.by(first_two)


def first_two(store: Store) -> None:
    """Two published batches of a partition: of the offsets 0 to 3 in two files, then of 12 to 15; others are lost."""
    land(store, [0, 1])
    land(store, [2, 3])
    run_and_publish(next_batch(counted_sparse(store, "dense"), store.root))
    land(store, [12, 13, 14, 15])
    run_and_publish(next_batch(counted_sparse(store, "dense"), store.root, LOST))


def backfilled(store: Store, docs: Path, first: int, last: int | None = None) -> Backfill:
    asked = Asked(first, first if last is None else last, DEFAULTS, "landed anew", True)
    return run_again(counted_sparse(store, "dense"), store, asked, docs)


def seen(store: Store) -> list[tuple[str, int]]:
    table = log_of(store, "counted")
    return sorted((row["ad"], row["n"]) for row in table.to_pyarrow_table(columns=["ad", "n"]).to_pylist())


def values(store: Store, offsets: list[int], added: int, ads: list[str] | None = None) -> str:
    """Land a file of these offsets, its values so much greater."""
    table = pa.table({"ad": ads or [f"N{offset}" for offset in offsets], "n": pa.array([n + added for n in offsets])})
    return land_file(table, "views", f"{store.root}/topics", 0, offsets[0], offsets=offsets)


def test_other_values_are_shown_and_put_in_place_only_by_digest(two_sparse_batches: Store, tmp_path: Path) -> None:
    values(two_sparse_batches, [2, 3], 100)
    with pytest.raises(Refused, match="the file was changed since the batch was planned"):
        actions.begin(counted_sparse(two_sparse_batches, "dense"), two_sparse_batches, Asked(0, 0, DEFAULTS))
    before = seen(two_sparse_batches)
    asked = Asked(0, 0, DEFAULTS, repaired=True)
    shown = preview_page(
        two_sparse_batches,
        "counted",
        actions.preview(counted_sparse(two_sparse_batches, "dense"), two_sparse_batches, asked),
    )
    assert "The input was repaired" in shown
    assert "views+0+0000000002.parquet" in shown
    request = backfilled(two_sparse_batches, tmp_path, 0)
    found = actions.comparison(two_sparse_batches, request, tmp_path)
    assert [(change.range, change.files, change.records, change.added) for change in found.repairs] == [
        ("views-0@[0,4)", (1, 0), (4, 4), ())
    ]
    assert str(found) == "different: 2 keys of counted (batch 0)"
    assert actions.review(two_sparse_batches, request).needs_approval
    assert seen(two_sparse_batches) == before
    assert "<h2>The input was repaired</h2>" in (tmp_path / "counted" / "backfill-0.html").read_text()
    actions.swap(two_sparse_batches, request, digest(found), "")
    assert seen(two_sparse_batches) == sorted((ad, n + 100 if ad in ("N2", "N3") else n) for ad, n in before)
    actions.undo(two_sparse_batches, request, "")
    assert seen(two_sparse_batches) == before


def test_the_same_rows_of_other_files_are_put_in_place_only_by_digest(
    two_sparse_batches: Store, tmp_path: Path
) -> None:
    # One file where there were two.
    land(two_sparse_batches, [0, 1, 2, 3])
    two_sparse_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    request = backfilled(two_sparse_batches, tmp_path, 0)
    found = actions.comparison(two_sparse_batches, request)
    assert found.same
    assert [(change.files, change.first) for change in found.repairs] == [
        (
            (1, 1),
            tuple(f"{two_sparse_batches.root}/topics/views/partition=0/views+0+000000000{n}.parquet" for n in (0, 2)),
        )
    ]
    assert found.needs_approval
    actions.swap(two_sparse_batches, request, digest(found), "")


def test_offsets_that_were_lost_are_added_and_named(two_sparse_batches: Store, tmp_path: Path) -> None:
    land(two_sparse_batches, [4, 5, 6, 7, 8, 9])
    before, ledger = seen(two_sparse_batches), Ledger(two_sparse_batches, "counted")
    assert [str(gap.range) for gap in gaps(ledger)] == ["views-0@[4,12)"]
    request = backfilled(two_sparse_batches, tmp_path, 1)
    found = actions.comparison(two_sparse_batches, request)
    (change,) = found.repairs
    assert (change.records, change.added_text) == ((4, 10), "views-0@[4,10)")
    expect_golden("backfill_repaired.md", markdown(comparison_sections(found)))
    actions.swap(two_sparse_batches, request, digest(found), "")
    assert seen(two_sparse_batches) == sorted([*before, *((f"N{n}", n) for n in range(4, 10))])
    assert [str(gap.range) for gap in gaps(ledger)] == ["views-0@[10,12)"]
    # Later batches go on where they were.
    land(two_sparse_batches, [16, 17])
    published(two_sparse_batches, counted_sparse(two_sparse_batches, "dense"), tmp_path)
    assert len(seen(two_sparse_batches)) == len(before) + 6 + 2


@pytest.mark.parametrize(
    ("offsets", "added", "told"),
    [
        ([2], 0, "gap: no file holds views-0@[3,12)"),
        ([3], 0, "gap: no file holds views-0@[2,3)"),
        ([2, 4], 0, "2 records have the offsets [2,5): a gap"),
        ([1, 2, 3], 9, "two files hold views-0@[1,2), and differ from offset 1 on"),
    ],
    ids=["the last", "the first", "another", "twice"],
)
def test_a_repair_that_lacks_offsets_or_has_them_twice_is_refused(
    offsets: list[int], added: int, told: str, two_sparse_batches: Store, tmp_path: Path
) -> None:
    two_sparse_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    values(two_sparse_batches, offsets, added)
    before = sorted(entry.key for entry in two_sparse_batches.list(""))
    with pytest.raises(Refused) as refused:
        actions.begin(
            counted_sparse(two_sparse_batches, "dense"), two_sparse_batches, Asked(0, 0, DEFAULTS, repaired=True)
        )
    assert told in str(refused.value)
    assert sorted(entry.key for entry in two_sparse_batches.list("")) == before


def test_a_repair_may_hold_what_other_files_have_too(two_sparse_batches: Store, tmp_path: Path) -> None:
    two_sparse_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    values(two_sparse_batches, [1, 2, 3], 0)
    request = backfilled(two_sparse_batches, tmp_path, 0)
    assert actions.comparison(two_sparse_batches, request).same


def test_a_repair_that_ends_too_early_is_refused(two_sparse_batches: Store) -> None:
    land(two_sparse_batches, [12, 13, 14])
    with pytest.raises(Refused, match=r"views-0@\[15,16\) was read, and no file holds it any more"):
        actions.begin(
            counted_sparse(two_sparse_batches, "dense"), two_sparse_batches, Asked(1, 1, DEFAULTS, repaired=True)
        )


def test_a_repair_that_puts_keys_elsewhere_is_refused(store: Store, tmp_path: Path) -> None:
    pipeline = counted_sparse(store, "dense", partitions=2)
    homes = {ad: placement_hash(ad, "string") % 2 for ad in (f"N{n}" for n in range(20))}
    for partition in range(2):
        land(store, [0, 1], [ad for ad, home in homes.items() if home == partition][:2], partition)
    published(store, pipeline, tmp_path)
    land(store, [0, 1], [ad for ad, home in homes.items() if home == 1][2:4], 0)
    request = actions.begin(pipeline, store, Asked(0, 0, DEFAULTS, "", True))
    with Local(processes=1) as runner, pytest.raises(Refused, match="hash") as refused:
        actions.run(pipeline, store, request, runner, tmp_path, silently)
    assert "views-0" in str(refused.value)
    with pytest.raises(Refused, match="batch 0 has not run yet"):
        actions.comparison(store, request)


def test_a_request_keeps_in_mind_that_its_input_was_repaired(two_sparse_batches: Store, tmp_path: Path) -> None:
    pipeline = counted_sparse(two_sparse_batches, "dense")
    asked = Asked(0, 0, DEFAULTS, "", True)
    one = actions.begin(pipeline, two_sparse_batches, asked)
    assert one.repaired is True
    assert actions.begin(pipeline, two_sparse_batches, asked) == one
    other = actions.begin(pipeline, two_sparse_batches, Asked(0, 0, DEFAULTS))
    assert (other.number, other.repaired is True) == (1, False)
    # Offsets behind those of the batch are none of it.
    land(two_sparse_batches, [16, 17])
    ref, _ = plan(pipeline, two_sparse_batches.root)
    assert ref is not None
    assert [part.end for part in actions.planned(pipeline, two_sparse_batches, one, 0).streams[0].partitions] == [4]


def test_the_file_that_was_read_last_may_be_repaired_by_a_backfill(two_sparse_batches: Store, tmp_path: Path) -> None:
    values(two_sparse_batches, [12, 13, 14, 15], 100)
    land(two_sparse_batches, [16, 17])
    with pytest.raises(Refused, match="another file has the last of these offsets now") as refused:
        plan(counted_sparse(two_sparse_batches, "dense"), two_sparse_batches.root)
    (finding,) = refused.value.findings
    assert "`coset backfill counted --from N --input repaired`" in finding.then
    request = backfilled(two_sparse_batches, tmp_path, 1)
    actions.swap(two_sparse_batches, request, digest(actions.comparison(two_sparse_batches, request)), "")
    ref, _ = plan(counted_sparse(two_sparse_batches, "dense"), two_sparse_batches.root)
    assert ref is not None
    assert str(ref.load()[1].ranges()[0]) == "views-0@[16,18)"


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


def test_previews_read_as_the_golden_files(three_batches: Store) -> None:
    words = ("backfill", NEWEST, "--from", "0", "--to", "1", "--scheme", "tasks(6)", "--preview")
    shown = succeeded(*words)
    expect_golden("cli_backfill_preview.txt", read(shown.stdout))
    told = json.loads(coset(*words, "--json").stdout)
    assert [batch["batch"] for batch in told["batches"]] == [0, 1]
    assert told["seconds"].keys() == {"0", "1"}
    assert (told["keeps"], told["later"]) == (["newest"], [{"batch": 2, "open": False}])
    assert [(table["write"]["table"], table["rows"]) for table in told["tables"]] == [("counts", 20), ("newest", 20)]
    asked = Asked(2, 2, Settings.parse(scheme="tasks(6)"))
    expect_golden(
        "backfill_preview.md",
        read(preview_page(three_batches, "newest", actions.preview(load(NEWEST), three_batches, asked))),
    )


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
