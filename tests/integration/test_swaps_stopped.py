"""A swap or undo that stopped between two tables: it is finished, or turned back where it cannot be."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coset.batches.backfills import actions, swaps
from coset.batches.backfills.request import backfill, comparison_of
from coset.batches.compared_rows import rows_of
from coset.batches.steps import plan
from coset.batches.tables import compaction
from coset.batches.tables.compaction import compact
from coset.cli.pipelines import load
from partitioning.authoring.settings import Settings
from partitioning.commands import Shown
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.backfill import SwapKind
from tests.commands import coset, succeeded
from tests.examples import few
from tests.faults import FaultProxy
from tests.logs import log_of
from tests.swapped import (
    NEWEST,
    backfilled,
    batch,
    chosen,
    compared,
    entered,
    half,
    interrupted,
    killed,
    land,
    seen,
    two_batches,
)
from tests.there import there

__all__ = ["backfilled", "two_batches"]


def planned(store: Store) -> None:
    assert plan(load(NEWEST), store.root, Settings())[0] is None


def status(_: Store) -> None:
    result = succeeded("status", NEWEST)
    assert "half" not in result.stdout


def ran(_: Store) -> None:
    succeeded("run", NEWEST, "--runner", "local")


def compacted(store: Store) -> None:
    compact(load(NEWEST), store, timedelta(days=7))


def compared_in_airflow(store: Store) -> None:
    actions.review(store, backfill(store, "newest", 0))


COMERS = (planned, status, ran, compacted, compared_in_airflow)


@pytest.mark.parametrize(
    ("to", "comer"), few([(SwapKind.UNDO, planned), *((SwapKind.SWAP, comer) for comer in COMERS)])
)
def test_is_finished_by_whoever_comes_next(to: SwapKind, comer: Callable[[Store], None], backfilled: Store) -> None:
    store, before = backfilled, seen(backfilled)
    half(store, to)
    said, whole = ("half in place", "in place") if to is SwapKind.SWAP else ("half taken back", "taken back")
    listed = coset("backfills", NEWEST)
    assert f"{said}: 1 of 2 tables" in listed.stdout
    assert f"{said}: 1 of 2 tables" in coset("backfills", NEWEST, "0").stdout
    (told,) = [json.loads(coset("backfills", NEWEST, "--json").stdout)["half"]]
    assert (told["backfill"], told["done"], told["missing"]) == (0, ["counts"], ["newest"])
    assert seen(store)[1] == (before[1] if to is SwapKind.SWAP else chosen(before[1]))
    comer(store)
    assert seen(store)[1] == (chosen(before[1]) if to is SwapKind.SWAP else before[1])
    assert re.search(rf" {whole}$", coset("backfills", NEWEST).stdout, re.MULTILINE)
    assert json.loads(coset("backfills", NEWEST, "--json").stdout)["half"] is None


@pytest.mark.long
def test_is_said_to_be_half_by_whoever_may_not_write(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy
) -> None:
    compared(store)
    half(entered(store, tmp_path, monkeypatch), SwapKind.SWAP)
    proxy.spoil("before:403 put.* .")
    shown = coset("status", NEWEST)
    told = json.loads(coset("status", NEWEST, "--json").stdout)
    proxy.heal()
    assert shown.exit_code == 0, shown.output
    assert "Backfill 0 is half in place: 1 of 2 tables (counts), not yet newest." in shown.stdout
    assert "Next: coset run " in shown.stdout
    assert "Readers see batch" not in shown.stdout
    assert (told["half"]["done"], told["half"]["missing"]) == (["counts"], ["newest"])


@pytest.mark.long
def test_is_finished_before_a_batch_is_published(backfilled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that goes on from what the backfill keeps comes after it in every table, whoever was quicker."""
    store = backfilled
    decide = swaps._decide

    def decided(*given: Any) -> None:
        decide(*given)
        raise KeyboardInterrupt

    interrupted(store, SwapKind.SWAP, "_decide", decided)
    land(store, 2)
    with monkeypatch.context() as patch:
        # It was decided after somebody who plans had looked whether there is something to finish.
        patch.setattr("coset.batches.planning.finish", lambda *_: None)
        succeeded("plan", NEWEST)
    succeeded("run", NEWEST, "--runner", "local")
    swaps.finish(store, "newest")
    newest = {f"key-{key}": 10 * number + key for number in range(3) for key in range(3 * number, 10)}
    assert seen(store)[1] == sorted((key, identity) for key, identity in newest.items() if identity >= 5)


@pytest.mark.long
def test_of_two_decisions_the_first_is_whole_before_the_second_is_made(
    backfilled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the first is made, and left half done, right after the second's maker looked."""
    store, before = backfilled, seen(backfilled)
    half(store, SwapKind.SWAP)
    with monkeypatch.context() as patch:
        patch.setattr(swaps, "finish", lambda *_: None)
        actions.undo(store, backfill(store, "newest", 0), "")
    assert seen(store) == before


@pytest.mark.long
def test_what_was_taken_back_is_not_put_in_place_by_a_cleared_task(backfilled: Store) -> None:
    store, before = backfilled, seen(backfilled)
    review = actions.review(store, backfill(store, "newest", 0))
    assert review.needs_approval
    actions.swap(store, review.request, review.digest, "", "ann", decided=review.decided)
    # A retry finds it done.
    actions.swap(store, review.request, review.digest, "", "ann", decided=review.decided)
    actions.undo(store, review.request, "too early", "bob")
    with pytest.raises(Refused, match=r"bob took it back at .*: too early") as refused:
        actions.swap(store, review.request, review.digest, "", "ann", decided=review.decided)
    assert seen(store) == before
    (finding,) = refused.value.findings
    assert finding.then == f"`coset swap newest 0 --approve {review.digest}`"
    assert Shown(airflow=True).says(finding.next).startswith("clear the task compare, which asks for approval (`coset ")
    # Asked again, it is done.
    again = actions.review(store, backfill(store, "newest", 0))
    assert again.needs_approval
    actions.swap(store, again.request, again.digest, "", "ann", decided=again.decided)
    assert seen(store)[1] == chosen(before[1])


@pytest.mark.long
def test_what_was_taken_back_is_not_put_in_place_by_going_on_with_it(two_batches: Store) -> None:
    words = ("backfill", NEWEST, "--from", "0", "--cascade", "--scheme", "tasks(2)", "--runner", "local")
    assert "It is in place" in coset(*words).stdout
    succeeded("undo", NEWEST, "0", "--why", "too early")
    shown = succeeded("backfill", NEWEST, "--resume", "0", "--runner", "local")
    assert "It is in place" not in shown.stdout
    (command,) = re.findall(r"`coset (swap [^`]+ 0 --approve sha256:[^`]+)`", shown.stdout)
    succeeded(*command.split())


# ---- that cannot be finished


def newest(store: Store, version: int | None = None) -> DeltaTable:
    return log_of(store, "newest", version)


def removed(store: Store, keys: list[str]) -> Callable[[], None]:
    """Remove files; how they are put back."""
    assert keys
    data = {key: store.get(key) or b"" for key in keys}
    for key in keys:
        store.delete(key)

    def restored() -> None:
        for key, content in data.items():
            store.put(key, content)

    return restored


def files_to_come(store: Store, to: SwapKind) -> list[str]:
    """Those of the upserted table that a swap, or an undo, gives it."""
    if to is SwapKind.UNDO:
        return keys_of(newest(store, newest(store).version() - 1))
    there = keys_of(newest(store))
    keys = [entry.key for entry in store.list("tables/newest/") if entry.key.endswith(".parquet")]
    return [key for key in keys if key not in there]


def keys_of(table: DeltaTable) -> list[str]:
    """The files of the table, by their keys in the store."""
    return [uri[uri.index("tables/newest/") :] for uri in table.file_uris()]


def told(*words: str) -> str:
    """The next steps of a command that is refused."""
    result = coset(*words, "--json")
    assert result.exit_code == 3, result.output
    return "\n".join(finding["next"] for finding in json.loads(result.stderr.splitlines()[-1])["findings"])


def named(text: str, verb: str) -> list[str]:
    (line,) = set(re.findall(rf"`coset ({verb} [^`]+)`", text))
    return shlex.split(line)


@pytest.mark.parametrize("to", [SwapKind.SWAP, SwapKind.UNDO])
def test_is_turned_back_where_it_is_done_by_the_command_that_is_named(to: SwapKind, backfilled: Store) -> None:
    store, before = backfilled, seen(backfilled)
    half(store, to)
    restored = removed(store, files_to_come(store, to))
    refused = told("run", NEWEST, "--runner", "local")
    verb, back = ("undo", "swap") if to is SwapKind.SWAP else ("swap", "undo")
    assert told("compact", NEWEST) == refused
    assert "half" in coset("status", NEWEST).stdout
    turned = succeeded(*named(refused, verb))
    assert "counts at version" in turned.stdout
    after = (before[0], before[1]) if to is SwapKind.SWAP else (seen(store)[0], chosen(before[1]))
    assert seen(store) == after
    assert "half" not in coset("backfills", NEWEST).stdout
    assert swaps.half(store, "newest") is None
    # Once the files are there again, it can be done as a whole.
    restored()
    approved = json.loads(coset("backfills", NEWEST, "0", "--json").stdout)["comparison"]["digest"]
    words = ("swap", NEWEST, "0", "--approve", approved) if back == "swap" else ("undo", NEWEST, "0")
    done = succeeded(*words)
    assert seen(store)[1] == (chosen(before[1]) if to is SwapKind.SWAP else before[1])
    again = coset("undo", NEWEST, "0") if to is SwapKind.SWAP else done
    assert again.exit_code == 0, again.output
    assert seen(store) == before


def test_no_swap_overwrites_what_others_did_before_that_is_accepted(backfilled: Store) -> None:
    store = backfilled
    newest(store).delete("k = 'key-3'")
    before = seen(store)
    approved = json.loads(coset("backfills", NEWEST, "0", "--json").stdout)["comparison"]["digest"]
    swap = ("swap", NEWEST, "0", "--approve", approved)
    refused = told(*swap)
    assert seen(store) == before
    succeeded(*named(refused, "accept-changes"), "--why", "it was a test")
    succeeded(*swap)
    assert "key-3" not in [key for key, _ in before[1]]
    assert seen(store)[1] == chosen(sorted({f"key-{key}": 10 * (key >= 3) + key for key in range(10)}.items()))


@pytest.mark.long
def test_batches_go_on_after_a_half_swap_was_turned_back(backfilled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backfilled
    half(store, SwapKind.SWAP)
    removed(store, files_to_come(store, SwapKind.SWAP))
    monkeypatch.delenv("NEWEST_FROM")
    succeeded("undo", NEWEST, "0")
    land(store, 2)
    batch(store)
    latest = {f"key-{key}": 10 * number + key for number in range(3) for key in range(3 * number, 10)}
    assert seen(store)[1] == sorted(latest.items())


def test_a_table_that_others_put_together_blocks_a_swap_of_which_nothing_was_done(backfilled: Store) -> None:
    store, before = backfilled, seen(backfilled)
    interrupted(store, SwapKind.SWAP, "exchange", killed)
    log_of(store, "counts").optimize.compact()
    refused = told("run", NEWEST, "--runner", "local")
    assert "0 of 2 tables" in coset("status", NEWEST).stdout
    succeeded(*named(refused, "undo"))
    assert seen(store) == before


# ---- beside a compaction


@pytest.mark.parametrize(
    ("where", "code"), [((DeltaTable, "vacuum"), 0), ((compaction, "at_once"), 3)], ids=["before", "after"]
)
def test_a_compaction_that_stops_while_a_swap_is_taken_back_removes_nothing_that_a_table_has(
    where: tuple[Any, str], code: int, backfilled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it says in the log what it removes, the swap is taken back; after that, it is too late."""
    store, before = backfilled, seen(backfilled)
    actions.swap(store, backfill(store, "newest", 0), approved(store), "")
    swapped, goes_on = seen(store), getattr(*where)

    def stopped(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(*where, goes_on)
        undone = coset("undo", NEWEST, "0")
        assert (undone.exit_code, "it is removed" in undone.output) == (code, bool(code))
        return goes_on(*given, **options)

    monkeypatch.setattr(*where, stopped)
    (first, _) = compact(load(NEWEST), store, timedelta(0))
    assert first.removed
    assert seen(store) == (swapped if code else before)
    assert "half" not in coset("status", NEWEST).stdout


def test_a_compaction_that_ends_early_leaves_what_another_wrote_meanwhile(
    two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before, reading = two_batches, seen(two_batches), "coset.batches.tables.compaction.rows_of"

    def ended(*_: object) -> Any:
        monkeypatch.setattr(reading, rows_of)
        assert sum(done.made for done in compact(load(NEWEST), store, timedelta(7)))
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, ended)
    with pytest.raises(KeyboardInterrupt):
        compact(load(NEWEST), store, timedelta(7))
    assert seen(store) == before


def approved(store: Store) -> str:
    return digest(there(comparison_of(store, backfill(store, "newest", 0))))
