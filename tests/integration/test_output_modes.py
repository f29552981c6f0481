"""Result tables whose rows take the place of others: by key, or of all."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coset.batches import publication, steps
from coset.batches.attempt import Attempt
from coset.batches.ref import BatchRef
from coset.batches.tables.compaction import compact
from coset.batches.tables.logs import Logs
from coset.testing import run
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.table_mode import Mode
from partitioning.model.verdict import Judged
from tests.examples import few
from tests.histories import Click, History, Row, table_of, total
from tests.landed import land_table
from tests.logs import log_of
from tests.running import run_groups

Rows = dict[str, list[Row]]


def tables(source: str, partitions: int) -> Pipeline:
    """One for each way to have one row for each key, and one that has what came last."""
    pipeline = Pipeline("kept", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=partitions)
    total(clicks).write("totals", mode="upsert", lineage=True)
    clicks.latest("seen", name="newest").write("newest", mode="upsert", deletes="id % 5 = 0")
    counts = clicks.aggregate("count(*) AS n, max(id) AS last", name="counts")
    counts.to_stream().write("last", mode="upsert")
    counts.write("now", mode="replace")
    return pipeline


class Oracle:
    """What tables hold after all batches up to now."""

    def __init__(self) -> None:
        self._batches: list[Sequence[Click]] = []

    def batch(self, clicks: Sequence[Click]) -> Rows:
        self._batches.append(clicks)
        seen = [click for batch in self._batches for click in batch]
        by_key = {key: [click for click in seen if click.key == key] for key in {click.key for click in seen}}
        brought = {click.key: number for number, batch in enumerate(self._batches) for click in batch}
        newest = [max(found, key=lambda click: (click.minute, click.identity)) for found in by_key.values()]
        counts = {row[0]: row for batch in self._batches for row in _counts(batch)}
        return _sorted(
            totals=[(*row, brought[str(row[0])]) for row in _counts(seen)],
            newest=[(click.key, click.identity, click.minute) for click in newest if click.identity % 5],
            last=list(counts.values()),
            now=_counts(clicks),
        )


def _counts(clicks: Sequence[Click]) -> list[Row]:
    keys = {click.key: [other.identity for other in clicks if other.key == click.key] for click in clicks}
    return [(key, len(found), max(found)) for key, found in keys.items()]


def _sorted(**tables: list[Row]) -> Rows:
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def held(store: Store) -> Rows:
    """What readers of the tables see."""
    columns = {
        "totals": ["k", "n", "last", "_batch"],
        "newest": ["k", "id", "seen"],
        "last": ["k", "n", "last"],
        "now": ["k", "n", "last"],
    }
    return _sorted(**{table: list(_rows(log_of(store, table), names)) for table, names in columns.items()})


def _rows(table: DeltaTable, names: list[str]) -> Iterator[Row]:
    for row in table.to_pyarrow_table(columns=names).to_pylist():
        yield tuple(value.minute if name == "seen" else value for name, value in row.items())


@pytest.mark.parametrize(("batches", "seed"), few([(3, 0), (6, 1)]))
def test_tables_hold_what_one_process_makes_of_all_batches(
    batches: int, seed: int, store: Store, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    history, oracle, partitions = History(store, tmp_path, tables), Oracle(), 4
    for _ in range(batches):
        partitions = chosen.choice([partitions, partitions, 2 * partitions]) if partitions < 16 else partitions
        keys = chosen.sample(range(30), chosen.choice([1, 2, 10]))
        clicks = [Click(f"key-{number}", chosen.randrange(100), chosen.randrange(60)) for number in keys * 2]
        history.land(clicks, [], partitions)
        scheme = chosen.choice(["cogroup", "elastic(2)", "tasks(3)", "tasks(1)", "tasks(24)"])
        history.publish(history.plan(Settings.parse(scheme=scheme), partitions), judged=False)
        assert held(store) == oracle.batch(clicks)


class Tables(History):
    """Batches of clicks, each of keys with an identity, a minute after the one before."""

    def __init__(
        self, store: Store, docs: Path, pipeline: Callable[[str, int], Pipeline] = tables, batches: int = 0
    ) -> None:
        super().__init__(store, docs, pipeline)
        self._minute = batches

    def planned(self, clicks: Mapping[str, int], scheme: str = "cogroup", **asked: Any) -> BatchRef:
        self._minute += 1
        self.land([Click(key, identity, self._minute) for key, identity in clicks.items()], [], 4)
        return self.plan(Settings.parse(scheme=scheme, **asked), 4)

    def batch(self, clicks: Mapping[str, int], scheme: str = "cogroup", **asked: Any) -> BatchRef:
        ref = self.planned(clicks, scheme, **asked)
        self.publish(ref, judged=False)
        return ref


def changed(store: Store, table: str) -> tuple[list[str], list[str]]:
    """The partitions of which the last commit added and removed files."""
    log = sorted(entry.key for entry in store.list(f"tables/{table}/_delta_log/") if entry.key.endswith(".json"))
    actions = [json.loads(line) for line in (store.get(log[-1]) or b"").splitlines()]
    added, removed = (
        sorted(action[kind]["partitionValues"].get("_residue", "") for action in actions if kind in action)
        for kind in ("add", "remove")
    )
    return added, removed


def test_only_the_partitions_of_the_keys_that_came_are_written(store: Store, tmp_path: Path) -> None:
    history = Tables(store, tmp_path)
    history.batch({f"key-{number}": 1 for number in range(40)})
    assert changed(store, "totals") == (["0", "1", "2", "3"], [])
    history.batch({"key-7": 2})
    ((home,), removed) = changed(store, "totals")
    assert removed == [home]
    # By three tasks each partition is read in all of them: none can tell what the others have.
    history.batch({"key-7": 3}, "tasks(3)")
    added, removed = changed(store, "totals")
    assert (len(added), sorted(set(added)), removed) == (12, ["0", "1", "2", "3"], ["0", "1", "2", "3"])
    # What the expectations judge, and what is replaced.
    history.publish(history.planned({"key-8": 4}))
    assert held(store)["now"] == [("key-8", 1, 4)]


def test_a_table_that_comes_later_has_what_its_step_kept_before(store: Store, tmp_path: Path) -> None:
    def newest(*modes: WriteMode) -> Callable[[str, int], Pipeline]:
        def pipeline(source: str, partitions: int) -> Pipeline:
            made = Pipeline("kept", source=source)
            latest = made.stream("clicks", key="k", partitions=partitions).latest("seen", name="latest")
            for mode in modes:
                latest.to_stream().write(mode, mode=mode)
            return made

        return pipeline

    keys = {f"key-{number}": 1 for number in range(40)}
    Tables(store, tmp_path, newest("append")).batch(keys)
    Tables(store, tmp_path, newest("append", "upsert"), 1).batch({"key-7": 2})
    rows = log_of(store, "upsert").to_pyarrow_table(columns=["k", "id"]).to_pylist()
    assert {row["k"]: row["id"] for row in rows} == keys | {"key-7": 2}


def test_a_key_is_deleted_and_comes_back(store: Store, tmp_path: Path) -> None:
    history = Tables(store, tmp_path)
    for identity, rows in ((1, [("key-1", 1, 1)]), (5, []), (10, []), (6, [("key-1", 6, 4)])):
        history.batch({"key-1": identity})
        assert held(store)["newest"] == rows


def test_a_key_that_a_filter_lets_pass_no_more_loses_its_row() -> None:
    pipeline = Pipeline("newest", source="s3://landing/topics")
    pipeline.stream("clicks", key="k", partitions=1).latest("n").filter("n < 10").write("few", mode="upsert")
    rows = run(pipeline, {"clicks": [{"k": "a", "n": 1}, {"k": "b", "n": 2}]}, {"clicks": [{"k": "a", "n": 11}]})
    assert rows["few"] == [{"k": "b", "n": 2}]


def test_a_batch_without_records_replaces_nothing_that_is_kept_by_key(store: Store, tmp_path: Path) -> None:
    history = Tables(store, tmp_path)
    history.batch({"key-1": 1})
    before = held(store)
    land_table(table_of([Click("other", 1, 1)]), "views", f"{store.root}/topics", key="k", partitions=4)
    views = Tables(store, tmp_path, lambda source, partitions: _with_views(source, partitions))
    views.publish(views.plan(Settings(), 4), judged=False)
    assert {**held(store), "now": before["now"]} == before
    assert held(store)["now"] == []


def _with_views(source: str, partitions: int) -> Pipeline:
    pipeline = tables(source, partitions)
    pipeline.stream("views", key="k", partitions=partitions).write("views")
    return pipeline


def test_of_publishers_that_race_one_commits(store: Store, tmp_path: Path) -> None:
    history = Tables(store, tmp_path)
    history.batch({"key-1": 1, "key-2": 2})
    ref = history.planned({"key-1": 3})
    ledger, plan = ref.load()
    run_groups(ref)
    publication.decide(Attempt(ledger, plan, 0), Judged(0, 0, 0, 0, 0, 0))
    with ThreadPoolExecutor(4) as pool:
        commits = list(pool.map(lambda _: publication.publish(ledger, plan), range(4)))
    assert len(set(commits)) == 1
    assert held(store)["last"] == [("key-1", 1, 3), ("key-2", 1, 2)]
    # Also if the answer was lost, and with it the receipt.
    store.delete(ledger.key("commits", plan.batch))
    assert publication.publish(ledger, plan) == commits[0]


@pytest.mark.long
def test_a_batch_is_published_while_its_table_is_compacted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = Tables(store, tmp_path)
    history.batch({f"key-{number}": 1 for number in range(40)})
    # Four tasks for each partition: files that can be put together.
    history.batch({f"key-{number}": 2 for number in range(40)}, "elastic(4)")
    ref, together = history.planned({"key-1": 3}), dict[str, int]()

    read = Logs.table

    def read_and_compact(logs: Logs, where: str) -> DeltaTable | None:
        table, name = read(logs, where), where.rpartition("/")[2]
        if name not in together:
            together[name] = log_of(store, name).optimize.compact()["numFilesRemoved"]
        return table

    before = held(store)
    run_groups(ref)
    ledger, plan = ref.load()
    publication.decide(Attempt(ledger, plan, 0), Judged(0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Logs, "table", read_and_compact)
    publication.publish(ledger, plan)
    assert together == {"totals": 16, "newest": 16, "last": 16, "now": 16}
    others = {table: [row for row in rows if row[0] != "key-1"] for table, rows in before.items()}
    assert held(store) == _sorted(
        totals=[*others["totals"], ("key-1", 3, 3, 2)],
        newest=[*others["newest"], ("key-1", 3, 3)],
        last=[*others["last"], ("key-1", 1, 3)],
        now=[("key-1", 1, 3)],
    )


@pytest.mark.long
def test_tables_are_compacted_and_what_no_version_has_is_removed(store: Store, tmp_path: Path) -> None:
    history, pipeline = Tables(store, tmp_path), tables(f"{store.root}/topics", 4)
    assert compact(pipeline, store, timedelta(days=7)) == ()
    for identity in range(1, 4):
        history.batch({f"key-{number}": identity for number in range(40)}, "elastic(4)")
    ref = history.planned({f"key-{number}": 7 for number in range(40)}, "elastic(4)")
    run_groups(ref)
    before = held(store)
    done = {table.table: table for table in compact(pipeline, store, timedelta(0))}
    assert str(done["now"]) == "now: 16 files became 1, 48 old files removed"
    assert held(store) == before
    assert [str(table) for table in compact(pipeline, store, timedelta(days=7))][-1] == (
        "now: nothing to merge, 0 old files removed"
    )
    # What tasks have written of a batch that is not published yet is still there.
    history.publish(ref, judged=False)
    assert held(store)["now"] == held(store)["last"]


@pytest.mark.parametrize("mode", Mode)
def test_columns_are_added_later(mode: Mode, store: Store, tmp_path: Path) -> None:
    def written(columns: str) -> Callable[[str, int], Pipeline]:
        def pipeline(source: str, partitions: int) -> Pipeline:
            one = Pipeline("kept", source=source)
            clicks = one.stream("clicks", key="k", partitions=partitions)
            clicks.select(columns, name="chosen").to_stream().write("clicks", mode=mode)
            return one

        return pipeline

    narrow, wide = Tables(store, tmp_path, written("id")), Tables(store, tmp_path, written("id, id * 2 AS twice"))
    narrow.batch({"key-1": 1, "key-2": 2})
    wide.batch({"key-2": 4}, go_on=["clicks"])
    wide.batch({"key-3": 5}, "tasks(3)")
    rows = log_of(store, "clicks").to_pyarrow_table(columns=["k", "id", "twice"]).to_pylist()
    found = sorted(tuple(row.values()) for row in rows)
    old, new = [("key-1", 1, None)], [("key-3", 5, 10)]
    assert (
        found
        == {
            Mode.APPEND: [*old, ("key-2", 2, None), ("key-2", 4, 8), *new],
            Mode.UPSERT: [*old, ("key-2", 4, 8), *new],
            Mode.REPLACE: new,
        }[mode]
    )
    if mode is Mode.REPLACE:
        narrow.batch({"key-4": 6})
        assert log_of(store, "clicks").to_pyarrow_table().to_pylist() == [{"k": "key-4", "id": 6}]
        return
    with pytest.raises(Refused, match="column 'twice' is BIGINT in the table, missing in the plan"):
        narrow.planned({"key-4": 6})


@pytest.mark.parametrize(
    ("records", "what"),
    [
        (
            [Click("key-1", 1, 1), Click("key-1", 2, 1)],
            "the key 'key-1' has 2 rows: an upserted table has one row for each key",
        ),
        ([Click(None, 1, 1)], "a row has no key: an upserted table has one row for each key"),
    ],
    ids=["several", "none"],
)
def test_rows_that_are_not_one_for_each_key_are_refused(
    records: list[Click], what: str, store: Store, tmp_path: Path
) -> None:
    def pipeline(condition: str) -> Callable[[str, int], Pipeline]:
        def of(source: str, partitions: int) -> Pipeline:
            one = Pipeline("kept", source=source)
            clicks = one.stream("clicks", key="k", partitions=partitions, null_keys="own task")
            clicks.filter(condition).to_stream().write("clicks", mode="upsert")
            return one

        return of

    history = History(store, tmp_path, pipeline("true"))
    history.land([Click("key-0", 0, 1), *records], [], 4)
    with pytest.raises(Refused) as refused:
        history.publish(history.plan(Settings(), 4), judged=False)
    assert [finding.what for finding in refused.value.findings] == [what]
    # As it says.
    corrected = pipeline("k IS NOT NULL AND id <> 2")(f"{store.root}/topics", 4)
    _, ref, _ = steps.replan(corrected, store.root, Settings(), "rows that are not one for each key")
    assert ref is not None
    history.publish(ref, judged=False)
    assert set(log_of(store, "clicks").to_pyarrow_table(columns=["id"])["id"].to_pylist()) - {1} == {0}


@pytest.mark.long
def test_a_table_that_comes_later_has_all_rows(store: Store, tmp_path: Path) -> None:
    def and_more(*more: str) -> Tables:
        def pipeline(source: str, partitions: int) -> Pipeline:
            one = Pipeline("kept", source=source)
            newest = one.stream("clicks", key="k", partitions=partitions).latest("seen", name="newest")
            for table in ("first", *more):
                newest.write(table, mode="upsert")
            return one

        return Tables(store, tmp_path, pipeline)

    without, with_it = and_more(), and_more("later")
    without.batch({f"key-{number}": 1 for number in range(40)})
    for history, identity in ((with_it, 2), (without, 3), (with_it, 4)):
        history.batch({f"key-{identity}": identity})
        first, later = (
            sorted(log_of(store, table).to_pyarrow_table(columns=["k", "id"]).to_pylist(), key=str)
            for table in ("first", "later")
        )
        assert len(first) == 40
        assert (first == later) == (history is with_it)


def test_a_table_keeps_its_mode(store: Store, tmp_path: Path) -> None:
    history = Tables(store, tmp_path)
    history.batch({"key-1": 1})

    def otherwise(source: str, partitions: int) -> Pipeline:
        pipeline = Pipeline("kept", source=source)
        pipeline.stream("clicks", key="k", partitions=partitions).latest("seen", name="newest").to_stream().write(
            "newest"
        )
        return pipeline

    with pytest.raises(Refused, match="the table was upserted before: it is partitioned"):
        Tables(store, tmp_path, otherwise).planned({"key-1": 2})
