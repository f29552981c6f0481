"""What becomes of batches of random pipelines before they are published, and what is done to the store between them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches import publication, steps
from coset.batches.backfills import actions, swaps
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.kept import kept_states
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.sweeping import sweep
from coset.batches.tables.acceptance import accept
from coset.batches.tables.compaction import compact
from coset.batches.tables.first_rows import first_rows
from coset.batches.tables.others import stopping
from coset.testing.runs import Trial
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.backfill import Backfill
from partitioning.model.schemes import HotKeys, Scheme
from partitioning.model.task_engine import TaskMemory
from partitioning.planning.stages import hot_ranges
from partitioning.values import replace
from spark_jobs.engine import heavy_keys, relations
from spark_jobs.engine.relations import Relations
from spark_jobs.tables.table_schema import folder

MOST, LAKE = 1_000_000, "lake"
# What becomes of a batch, and what is done after it: some of it from one of the first batches on.
WAYS = ("", "", "in parts", "in parts", "in parts", "split", "killed", "given up")
BACKFILLS = ("backfill", "undo", "redo", "part", "part", "cancel", "stop", "stop")
DEEDS = ("", "", "compact", "sweep", "lose", "touch", "alter", "alter", "restore", *BACKFILLS)
# What may be asked about once something was done to the batches or tables that it is about.
_ABOUT = {Kind.TABLE_QUERY, Kind.TABLE_BEGINS, Kind.STATE_BEGINS, Kind.STATE_CHANGED}
# Why batches cannot be exchanged of which others put rows together, and that later ones went on from.
_IN_THE_WAY = {Kind.BACKFILL_TABLE, Kind.FILE_GONE, Kind.BACKFILL_LATER}


class Stopped(Exception):
    """What somebody is told who is killed."""


def asking(place: Trial, named: tuple[str, ...] = (), **more: Any) -> Settings:
    """Settings that let tables of a batch, and those of rows that change, lose most of their rows."""
    tables = tuple(write.table for write in place.pipeline.writes)
    return replace(Settings(allowance=Allowance(named=tables), begin_anew=named, go_on=named), **more)


def all_names(place: Trial) -> tuple[str, ...]:
    """All that may be asked about by name."""
    kept = [step.name for step in place.pipeline.steps if step.state]
    return (*kept, *(write.table for write in place.pipeline.writes))


@contextmanager
def following(place: Trial, follows: bool) -> Iterator[None]:
    """Where Iceberg tables follow: in a catalogue in the folder of the store."""
    folder, named = place.root.removeprefix("file://"), f"PYICEBERG_CATALOG__{LAKE.upper()}"
    said = {"COSET_ICEBERG": f"{LAKE}.shop", f"{named}__URI": f"sqlite:///{folder}/lake.db"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (said | {f"{named}__WAREHOUSE": f"{place.root}/lake"}).items() if follows else ():
            patch.setenv(name, value)
        yield


@contextmanager
def within(way: str) -> Iterator[None]:
    """How tasks run: in parts of their keys, as if memory were too small for all of them at once."""
    of, at_once = TaskMemory.of, Relations.create_by_keys

    def parted(self: Relations, name: str, sql: str, keys: Mapping[str, str], where: str) -> None:
        if not self._may_be_cut(sql, keys):
            return at_once(self, name, sql, keys, where)
        with self.errors(where):
            self._create_in_parts(name, sql, keys, where)

    with pytest.MonkeyPatch.context() as patch:
        # However few records there are, a key may have too many.
        patch.setattr(heavy_keys, "RECORDS", 2)
        patch.setattr(hot_ranges, "LEAST", 2)
        if way == "in parts":
            patch.setattr(relations, "_PARTS", 3)
            patch.setattr(Relations, "create_by_keys", parted)
            patch.setattr(TaskMemory, "of", lambda text: replace(of(text), short=True))
        yield


def run(place: Trial, way: str, settings: Settings, *, twice: bool) -> None:
    """Run the next batch, which may be killed or given up before."""
    settings = replace(settings, hot_keys=HotKeys.SPLIT) if way == "split" else settings
    with within(way):
        if way in {"killed", "given up"} and (ref := steps.plan(place.pipeline, place.root, settings)[0]):
            with Local(processes=1) as runner:
                runner.group(ref, ref.load()[1].groups[0].group)
            if way == "given up":
                publication.abandon(Ledger(store_at(place.root), place.pipeline.name), "by chance")
        place.run(settings, twice=twice)


def done(place: Trial, deed: str, number: int, touched: Collection[str]) -> set[str] | None:
    """Do something to the store after a batch. Returns the tables that are asked about then, None if it cannot be done:
    as rows are not where batches left them, of tables that others have `touched`."""
    store, (what, _, first) = store_at(place.root), deed.partition(" ")
    match what:
        case "compact":
            compact(place.pipeline, store, timedelta(days=7))
        case "sweep":
            sweep(place.pipeline, store)
        case "lose":
            _lose(place, store, random.Random(number))
        case "touch":
            _altered(place, store, lambda table: table.update(updates={"n": "n"}, predicate="i % 2 = 0"))
        case "alter":
            _altered(place, store, _other_values)
        case "restore":
            _altered(place, store, _other_values, back=True)
        case _:
            return _backfilled(place, store, what, int(first), number, touched)
    return set()


def _lose(place: Trial, store: Store, chance: random.Random) -> None:
    """Some of what the next batch goes on from is lost, and made again."""
    ledger = Ledger(store, place.pipeline.name)
    kept = sorted({file.path for state in kept_states(ledger) for run in state.runs for file in run})
    for path in chance.sample(kept, min(2, len(kept))):
        store.delete(path)
    for way in ("", "in parts") * 3:
        with Local(processes=1) as runner, within(way):
            try:
                restore(place.pipeline.name, store, runner, silently)
            except Refused as refusal:
                # Each batch has written it in the memory that it had.
                if "the memory that the batch had" not in str(refusal):
                    raise
    assert all(store.head(path) for path in kept)


def _altered(place: Trial, store: Store, alter: Callable[[DeltaTable], object], *, back: bool = False) -> None:
    """Others change tables, which the next batch would be refused for; somebody accepts it, or takes it `back`."""
    writes = {write.table: write for write in place.pipeline.writes}
    there = {table: folder(store, table).removeprefix("file://") for table in writes}
    for name, where in there.items():
        # The rows of a changelog are no values.
        if not DeltaTable.is_deltatable(where) or (alter is _other_values and name.startswith("c_")):
            continue
        table = DeltaTable(where)
        version, rows = table.version(), rows_of(store, [name])
        alter(table)
        refused = stopping(store, place.pipeline.name, [writes[name]])
        assert {finding.kind for finding in refused} == ({Kind.TABLE_CHANGED} if table.version() > version else set())
        if back and refused:
            table.restore(version)
            assert stopping(store, place.pipeline.name, [writes[name]]) == ()
            assert rows_of(store, [name]) == rows
        elif refused:
            accept(store, name, table.version(), who="me", why="as it was")


def _other_values(table: DeltaTable) -> None:
    table.update(updates={"n": "n + 100"}, predicate="i % 3 = 0")
    table.delete("i % 5 = 1")


def rows_of(store: Store, tables: Iterable[str]) -> dict[str, Counter[str]]:
    """The rows of these tables, as texts of their values."""
    found = {table: first_rows(store, table, MOST) for table in tables}
    return {table: texts_of(rows.rows) for table, rows in found.items() if rows}


def texts_of(rows: pa.Table) -> Counter[str]:
    """Rows as texts of their values."""
    return Counter(map(_text, rows.to_pylist()))


def _text(row: Mapping[str, object]) -> str:
    """Without what is missing: who takes a backfill back keeps its columns."""
    return str(sorted((name, value) for name, value in row.items() if value is not None))


def _backfilled(
    place: Trial, store: Store, what: str, first: int, number: int, touched: Collection[str]
) -> set[str] | None:
    try:
        backfill, named = _begun(place, store, first, number, one=what == "part")
        with TemporaryDirectory() as docs, Local(processes=1) as runner, within("in parts" if number % 2 else ""):
            actions.run(place.pipeline, store, backfill, runner, Path(docs), silently)
        found = actions.review(store, backfill)
        if found.blockers:
            raise Refused(*found.blockers)
    except Refused as refusal:
        if not _is_in_the_way(refusal, anywhere=bool(touched) or what == "part"):
            raise
        return None
    rows = [rows_of(store, tables := [write.table for write in place.pipeline.writes])]
    match what:
        case "cancel":
            actions.cancel(place.pipeline, store, backfill, "nobody wants it")
            assert rows_of(store, tables) == rows[0]
            return set()
        case "stop":
            _stopped(lambda: actions.swap(store, backfill, found.digest, ""), number % 3)
            if number % 2:
                swaps.finish(store, place.pipeline.name)
        case _:
            actions.swap(store, backfill, found.digest, "")
    if what in {"undo", "redo"}:
        rows.append(rows_of(store, tables))
        actions.undo(store, backfill, "")
        assert rows_of(store, tables) == rows[0]
    if what == "redo":
        actions.swap(store, backfill, actions.review(store, backfill).digest, "")
        assert rows_of(store, tables) == rows[1]
    return named if what != "undo" else set()


def _begun(place: Trial, store: Store, first: int, number: int, *, one: bool) -> tuple[Backfill, set[str]]:
    """A backfill from one of the first batches on, or of this `one`, and the tables that are asked about."""
    ledger, scheme = Ledger(store, place.pipeline.name), Scheme.parse(f"elastic({1 + number % 3})")
    newest = ledger.standing().published
    known = [batch for batch in range(newest.batch + 1 if newest else 0) if ledger.published(batch)]
    first = known[min(first, len(known) - 1)]
    last = first if one else None
    try:
        return actions.begin(place.pipeline, store, Asked(first, last, asking(place, scheme=scheme))), set()
    except Refused as refusal:
        if not {finding.kind for finding in refusal.findings} <= _ABOUT:
            raise
        named = {str(dict(finding.about).get("table")) for finding in refusal.findings}
        settings = asking(place, all_names(place), scheme=scheme)
        return actions.begin(place.pipeline, store, Asked(first, last, settings)), named


def _is_in_the_way(refusal: Refused, *, anywhere: bool) -> bool:
    """Whether a backfill is refused for what was done or landed since its batches ran."""
    kinds = {finding.kind for finding in refusal.findings}
    # A stream is new or left out, or a column of a stream is new.
    return "is read by" in str(refusal) or kinds == {Kind.TABLE_COLUMNS} or (anywhere and kinds <= _IN_THE_WAY)


def _stopped(turn: Callable[[], object], after: int) -> None:
    """Kill who swaps tables once so many are; whoever comes next has to finish it."""
    left = [after]

    def deadly(commit: Callable[..., int]) -> Callable[..., int]:
        def committed(*given: Any) -> int:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped
            return commit(*given)

        return committed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("exchange", "replace_rows"):
            patch.setattr(swaps, name, deadly(getattr(swaps, name)))
        with suppress(Stopped):
            turn()
