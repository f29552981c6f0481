"""`coset backfill` and what follows it, as typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coset.batches.backfills.limits import Unfinished, unfinished
from partitioning.documents.store import Store
from tests.begun import Begun
from tests.commands import PIPELINE, arrive, coset, land_first, refused, succeeded

CHANGED = str(Path(PIPELINE).with_name("delays_late.py"))


@pytest.fixture
def two_batches(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> Store:
    return entered(begun.by(published), monkeypatch)


def entered(store: Store, environment: pytest.MonkeyPatch) -> Store:
    environment.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    environment.setenv("COSET_STORE", store.root)
    environment.setenv("COSET_DOCS", str(pages_of(store)))
    return store


def pages_of(store: Store) -> Path:
    """Beside what else the store holds, so that they are begun with it."""
    return Path(urlsplit(store.root).path) / "pages"


def published(store: Store) -> None:
    with pytest.MonkeyPatch.context() as environment:
        land_first(entered(store, environment), environment)
        for _ in range(2):
            succeeded("run", PIPELINE, "--runner", "local")
            arrive(store, 40)


def typed(*words: str) -> str:
    result = succeeded(*words)
    return re.sub(r"\s+", " ", result.stdout)


def test_another_scheme_is_put_in_place_and_taken_back(two_batches: Store) -> None:
    shown = typed("backfill", PIPELINE, "--from", "0", "--to", "1", "--scheme", "tasks(8)", "--preview")
    assert "What a backfill of delays would run" in shown
    assert "Results stay the same" in shown
    assert typed("backfills", PIPELINE) == "delays has no backfills "
    words = ("backfill", PIPELINE, "--from", "0", "--to", "1", "--scheme", "tasks(8)", "--why", "hot")
    shown = typed(*words, "--runner", "local")
    assert "This is backfill 0 of delays: batches 0 to 1" in shown
    assert "Compared: identical: 40 rows of 2 batches." in shown
    assert "It is in place: delays at version 3" in shown
    pages = [pages_of(two_batches) / "delays" / name for name in ("index.html", "batch-0-attempt-0.html")]
    assert all("↺ backfilled" in page.read_text() for page in pages)
    assert "Readers see batch 1 as delays.backfill-0 gives it." in typed("status", PIPELINE)
    listed = typed("backfills", PIPELINE)
    assert "batches 0 to 1" in listed
    assert "hot" in listed
    assert "in place" in listed
    assert "It is taken back: delays at version 4" in typed("undo", PIPELINE, "0", "--why", "too early")
    assert "taken back" in typed("backfills", PIPELINE)
    assert not any("↺ backfilled" in page.read_text() for page in pages)
    found = json.loads(coset("backfills", PIPELINE, "0", "--json").stdout)["comparison"]
    refused(coset("swap", PIPELINE, "0", "--approve", "sha256:0"), "sha256:0 was approved")
    assert "at version 5" in typed("swap", PIPELINE, "0", "--approve", found["digest"])
    assert "at version 5" in typed("swap", PIPELINE, "0", "--approve", found["digest"])
    refused(coset("undo", PIPELINE, "7"), "there is no backfill 7")
    assert typed("gaps", PIPELINE).startswith("No gaps: published batches hold all offsets of delays")
    assert typed("run", PIPELINE, "--runner", "local")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "0", "--to", "0", "--cascade"), "--cascade runs all later batches, and --to names the last one"),
        (("--cancel", "0", "--preview"), "these options are about a backfill that begins"),
        (("--resume", "0", "--to", "1"), "these options are about a backfill that begins"),
    ],
)
def test_options_that_contradict_each_other_are_refused_and_nothing_is_done(
    words: tuple[str, ...], told: str, two_batches: Store
) -> None:
    typed("backfill", PIPELINE, "--from", "0", "--scheme", "tasks(8)", "--runner", "local")
    before = [entry.key for entry in two_batches.list("")]
    refused(coset("backfill", PIPELINE, *words), told)
    assert [entry.key for entry in two_batches.list("")] == before


def test_a_report_is_of_one_batch_or_since_a_time() -> None:
    refused(coset("report", PIPELINE, "--batch", "0", "--since", "7d"), "and --batch about one batch")


def test_a_changed_pipeline_waits_for_approval(two_batches: Store) -> None:
    shown = typed("backfill", CHANGED, "--from", "1", "--go-on", "delays", "--runner", "local")
    assert "The pipeline was changed: delays: " in shown
    assert "Compared: different: 20 keys of delays (batch 1)." in shown
    assert "The first keys that differ" in shown
    pages = pages_of(two_batches) / "delays"
    page = (pages / "backfill-0.html").read_text()
    assert "different: 20 keys of delays (batch 1)" in page
    assert "<code>delay 21" in page
    index = (pages / "index.html").read_text()
    assert '<a href="backfill-0.html">0</a>' in index
    assert index.count("batch-") >= 2
    (command,) = re.findall(r"`coset (swap \S+ 0 --approve sha256:[0-9a-f]+ [^`]+)`", shown)
    told = json.loads(coset("backfills", CHANGED, "--json").stdout)
    assert (told["backfills"][0]["batches"], told["swaps"]) == ([1], [])
    # As it says.
    assert "It is in place" in typed(*command.split())


def test_the_printed_query_has_the_columns_of_the_rows_that_readers_see(two_batches: Store, tmp_path: Path) -> None:
    wider = tmp_path / "delays.py"
    wider.write_text(Path(PIPELINE).read_text().replace("planes.seats", "planes.seats, totals.delay + 1 AS more"))
    before, now = '"tailnum", "delay", "seats" FROM', '"tailnum", "delay", "seats", "more" FROM'
    shown = typed("backfill", str(wider), "--from", "0", "--cascade", "--runner", "local")
    assert before in typed("explain", str(wider), "--query", "delays")
    (command,) = re.findall(r"`coset (swap \S+ 0 --approve sha256:[0-9a-f]+ [^`]+)`", shown)
    typed(*command.split())
    assert now in typed("explain", str(wider), "--query", "delays")
    typed("undo", str(wider), "0", "--why", "too early")
    assert before in typed("explain", str(wider), "--query", "delays")


def test_what_cannot_be_run_again_is_refused(two_batches: Store) -> None:
    refused(coset("backfill", PIPELINE, "--from", "0", "--to", "2"), "but batches 0 to 1 are published")
    refused(coset("backfill", PIPELINE, "--from", "5", "--preview"), "but batches 0 to 1 are published")


def test_a_backfill_is_paused_resumed_and_cancelled(two_batches: Store) -> None:
    words = (
        "backfill", CHANGED, "--from", "0", "--go-on", "delays", "--runner", "local",
        "--groups-at-once", "1", "--window", "00:00-23:59",
    )  # fmt: skip
    assert "This is backfill 0 of delays: batch 0" in typed(*words)
    paused = typed("backfill", CHANGED, "--pause", "0", "--why", "it is monday")
    assert "backfill 0 of delays: batch 0 is paused: task groups that run come to their end" in paused
    assert re.search(rf"`coset backfill {CHANGED} --resume 0 [^`]+` lets it go on", paused)
    assert "paused" in typed("backfills", CHANGED)
    assert list(unfinished(two_batches, "delays")) == [Unfinished.PAUSED]
    assert "Compared: different: 20 keys" in typed("backfill", CHANGED, "--resume", "0", "--runner", "local")
    assert "paused" not in typed("backfills", CHANGED)
    assert list(unfinished(two_batches, "delays")) == [Unfinished.COMPARED]
    assert json.loads(coset("backfill", CHANGED, "--pause", "0", "--json").stdout) == {"backfill": 0, "paused": True}
    shown = typed("backfill", CHANGED, "--cancel", "0", "--why", "a minute is much")
    assert re.match(
        r"backfill 0 of delays: batch 0 is cancelled; removed \d+ files \(.*\) that no verdict names", shown
    )
    assert "cancelled" in typed("backfills", CHANGED)
    assert list(unfinished(two_batches, "delays")) == []
    told = json.loads(coset("backfill", CHANGED, "--cancel", "0", "--json").stdout)
    assert told == {"backfill": 0, "cancelled": True, "removed": 0}
    refused(coset("backfill", CHANGED, "--resume", "0", "--runner", "local"), "cancelled it at", "a minute is much")
    assert f"begin another: `coset backfill {CHANGED} --from 0" in typed("backfills", CHANGED, "0")
    found = json.loads(coset("backfills", CHANGED, "0", "--json").stdout)["comparison"]
    refused(coset("swap", CHANGED, "0", "--approve", found["digest"]), "a minute is much")


@pytest.mark.parametrize("words", [(), ("--from", "0", "--resume", "0"), ("--pause", "0", "--cancel", "0")])
def test_one_thing_is_done_with_one_backfill(words: tuple[str, ...], two_batches: Store) -> None:
    refused(coset("backfill", PIPELINE, *words), "it is not said what to do with which backfill")


def test_a_window_that_is_none_is_refused(two_batches: Store) -> None:
    refused(coset("backfill", PIPELINE, "--from", "0", "--window", "at night"), "'at night' is not a window of hours")
