"""A swap or undo of several tables that stopped between two of them, and cannot be finished: it is turned back."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coset.batches.backfills import actions
from coset.batches.backfills.request import backfill, comparison_of
from coset.batches.backfills.swap import swaps
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.model.backfill import SwapKind
from tests.commands import coset, succeeded
from tests.logs import log_of
from tests.swapped import NEWEST, backfilled, batch, chosen, half, land, seen, two_batches

__all__ = ["two_batches"]


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
def test_is_turned_back_where_it_is_done_by_the_command_that_is_named(
    to: SwapKind, two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = two_batches, seen(two_batches)
    backfilled(store, tmp_path, monkeypatch)
    half(store, to, monkeypatch)
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


def test_no_swap_overwrites_what_others_did_before_that_is_accepted(
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two_batches
    backfilled(store, tmp_path, monkeypatch)
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
def test_batches_go_on_after_a_half_swap_was_turned_back(
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two_batches
    backfilled(store, tmp_path, monkeypatch)
    half(store, SwapKind.SWAP, monkeypatch)
    removed(store, files_to_come(store, SwapKind.SWAP))
    monkeypatch.delenv("NEWEST_FROM")
    succeeded("undo", NEWEST, "0")
    land(store, 2)
    batch(store)
    latest = {f"key-{key}": 10 * number + key for number in range(3) for key in range(3 * number, 10)}
    assert seen(store)[1] == sorted(latest.items())


def test_a_table_that_others_put_together_blocks_a_swap_of_which_nothing_was_done(
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = two_batches, seen(two_batches)
    backfilled(store, tmp_path, monkeypatch)
    request = backfill(store, "newest", 0)
    found = comparison_of(store, request)
    assert found is not None

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(swaps, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            actions.swap(store, request, digest(found), "")
    log_of(store, "counts").optimize.compact()
    refused = told("run", NEWEST, "--runner", "local")
    assert "0 of 2 tables" in coset("status", NEWEST).stdout
    succeeded(*named(refused, "undo"))
    assert seen(store) == before
