"""Random pipelines, batch after batch: each table is the query that is printed of it. And all at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from partitioning.model.graph import Op
from partitioning.model.meaning import RowKind, meanings
from tests.examples import share
from tests.random_queries import Arriving, Compared, History, check, failure, history, kept, made
from tests.soak import soak

SEEDS = [507, 518, *range(60)]
LATER = [
    seed
    for seed in range(60)
    if (of := history(seed)).late and len(made(of.went_on)[0].writes) > len(made(of.begun)[0].writes)
]


@pytest.mark.parametrize("seed", share(SEEDS, always=2))
def test_a_table_is_the_query_that_is_printed_of_it(seed: int) -> None:
    compared = Compared()
    check(replace(history(seed), late=frozenset(), grown=0), compared)
    # Two tables at least, after three batches at least.
    assert sum(compared.tables[kind] for kind in (RowKind.RECORDS, RowKind.NEWEST, RowKind.ALL)) >= 6


@pytest.mark.parametrize("seed", share(range(30)))
def test_a_table_is_its_query_whatever_leads_to_it_and_is_done_to_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_IMPORTS", "tests")
    compared = Compared()
    # A history may be refused as a whole.
    for number in range(seed, 300, 30):
        if not compared.tables:
            check(history(number, wide=True), compared)
    assert compared.tables


@pytest.mark.parametrize("seed", share([16, *range(12)]))
def test_what_is_kept_gives_its_query_whatever_is_done_to_the_store(seed: int) -> None:
    compared = Compared()
    check(kept(seed), compared)
    assert compared.after


@pytest.mark.parametrize("seed", share(LATER, always=2))
def test_a_table_that_is_added_later_is_its_query_unless_the_plan_asks_about_it(seed: int) -> None:
    compared = Compared()
    check(history(seed), compared)
    # What is refused when it is planned is left out, and with it perhaps all that is late.
    assert compared.added or compared.refused


def test_random_pipelines_have_all_steps_and_enough_tables_that_are_queries() -> None:
    pipelines = [made(history(seed).lines)[0] for seed in range(200)]
    are = [means for pipeline in pipelines for means in meanings(pipeline.graph).values()]
    assert sum(means.is_query for means in are) > len(are) / 3
    assert {means.rows for means in are} >= {RowKind.RECORDS, RowKind.NEWEST, RowKind.ALL, RowKind.OF_BATCH}
    steps = {step.op for pipeline in pipelines for step in pipeline.steps}
    assert {op.value for op in Op} - {op.value for op in steps} <= {"process", "spark", "to_stream"}


def batches(*, more: bool = False, after: str = "", way: str = "") -> tuple[Arriving, ...]:
    """Two batches of which the second may have a column `more`."""
    records: list[list[dict[str, object]]] = [
        [
            {
                "k": f"k{number}",
                "n": number,
                "t": datetime.fromisoformat(f"2026-11-0{1 + batch}"),
                "d": number / 2,
            }
            | ({"e": "e"} if more and batch else {})
            for number in range(12)
        ]
        for batch in range(2)
    ]
    return tuple(Arriving({"s0": rows}, None, 1, False, after * bool(n), way) for n, rows in enumerate(records))


S0 = 's0 = pipeline.stream("s0", key="k", partitions=2, source="s3://lake", time="t")'


def test_what_is_kept_for_a_time_is_not_cut() -> None:
    lines = S0, 'f0 = s0.distinct("n", time="t", within=timedelta(hours=2), name="f0")', 'f0.write("t_f0")'
    assert failure(History(lines, batches(way="in parts"))) == ""


def test_a_backfill_leaves_a_replaced_table_the_columns_of_its_last_batch() -> None:
    lines = S0, 's0.to_stream().write("t_s0", mode="replace")'
    assert failure(History(lines, batches(more=True, after="backfill 0"))) == ""


def test_what_is_refused_when_it_is_planned_is_left_out() -> None:
    seeded = history(0)
    wrong = 'f99 = s0.select("a, a, n, t, i", name="f99")'
    compared = Compared()
    check(History((*seeded.lines, wrong, 'f99.write("t_f99")'), seeded.batches[:1]), compared)
    assert compared.refused == 1
    assert compared.tables


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_soak_loses_and_doubles_nothing() -> None:
    found = soak(2, seed=1)
    assert {"run done", "run killed", "stopped"} <= found.done.keys()
    assert found.rests
