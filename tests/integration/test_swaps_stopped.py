"""A swap or undo of several tables that stopped between two of them.

Whoever comes next finishes it, and until then every page says half. What was taken back stays so until somebody asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.request import backfill, comparison_of
from coset.batches.backfills.swap import swaps
from coset.batches.steps import plan
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
from tests.swapped import NEWEST, backfilled, chosen, half, land, seen, two_batches

__all__ = ["two_batches"]


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
def test_is_finished_by_whoever_comes_next(
    to: SwapKind, comer: Callable[[Store], None], two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = two_batches, seen(two_batches)
    backfilled(store, tmp_path, monkeypatch)
    half(store, to, monkeypatch)
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
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy
) -> None:
    backfilled(two_batches, tmp_path, monkeypatch)
    half(two_batches, SwapKind.SWAP, monkeypatch)
    proxy.spoil("403 before storing", "PUT", "", None)
    shown = coset("status", NEWEST)
    told = json.loads(coset("status", NEWEST, "--json").stdout)
    assert proxy.heal()
    assert shown.exit_code == 0, shown.output
    assert "Backfill 0 is half in place: 1 of 2 tables (counts), not yet newest." in shown.stdout
    assert "Next: coset run " in shown.stdout
    assert "Readers see batch" not in shown.stdout
    assert (told["half"]["done"], told["half"]["missing"]) == (["counts"], ["newest"])


@pytest.mark.long
def test_is_finished_before_a_batch_is_published(
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that goes on from what the backfill keeps comes after it in every table, whoever was quicker."""
    store = two_batches
    backfilled(store, tmp_path, monkeypatch)
    request, decide = backfill(store, "newest", 0), swaps._decide
    found = comparison_of(store, request)
    assert found is not None

    def killed(*_: Any) -> None:
        decide(*_)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(swaps, "_decide", killed)
        with pytest.raises(KeyboardInterrupt):
            actions.swap(store, request, digest(found), "")
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
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the first is made, and left half done, right after the second's maker looked."""
    store = two_batches
    before = seen(store)
    backfilled(store, tmp_path, monkeypatch)
    half(store, SwapKind.SWAP, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(swaps, "finish", lambda *_: None)
        actions.undo(store, backfill(store, "newest", 0), "")
    assert seen(store) == before


@pytest.mark.long
def test_what_was_taken_back_is_not_put_in_place_by_a_cleared_task(
    two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two_batches
    before = seen(store)
    backfilled(store, tmp_path, monkeypatch)
    compared = actions.review(store, backfill(store, "newest", 0))
    assert compared.needs_approval
    actions.swap(store, compared.request, compared.digest, "", "ann", decided=compared.decided)
    # A retry finds it done.
    actions.swap(store, compared.request, compared.digest, "", "ann", decided=compared.decided)
    actions.undo(store, compared.request, "too early", "bob")
    with pytest.raises(Refused, match=r"bob took it back at .*: too early") as refused:
        actions.swap(store, compared.request, compared.digest, "", "ann", decided=compared.decided)
    assert seen(store) == before
    (finding,) = refused.value.findings
    assert finding.then == f"`coset swap newest 0 --approve {compared.digest}`"
    assert Shown(airflow=True).says(finding.next).startswith("clear the task compare, which asks for approval (`coset ")
    # Asked again, it is done.
    again = actions.review(store, backfill(store, "newest", 0))
    assert again.needs_approval
    actions.swap(store, again.request, again.digest, "", "ann", decided=again.decided)
    assert seen(store)[1] == chosen(before[1])


@pytest.mark.long
def test_what_was_taken_back_is_not_put_in_place_by_going_on_with_it(two_batches: Store, tmp_path: Path) -> None:
    words = ("backfill", NEWEST, "--from", "0", "--cascade", "--scheme", "tasks(2)", "--runner", "local")
    assert "It is in place" in coset(*words).stdout
    succeeded("undo", NEWEST, "0", "--why", "too early")
    shown = succeeded("backfill", NEWEST, "--resume", "0", "--runner", "local")
    assert "It is in place" not in shown.stdout
    (command,) = re.findall(r"`coset (swap [^`]+ 0 --approve sha256:[^`]+)`", shown.stdout)
    succeeded(*command.split())
