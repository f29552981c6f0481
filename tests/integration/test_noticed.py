"""Who noticed: quick systems meet each fault, and the page of the docs has what a run writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from bench.figures import put
from bench.noticed import on_spark, on_spark_retried
from bench.noticed.__main__ import PAGE, Part, of_each_fault, of_tasks, of_topics, retried
from bench.noticed.outcome import RETRIED, SYSTEMS, Outcome, Verdict
from bench.noticed.topics import Fault, Topics

RIGHT, WRONG, REFUSED, NAMED = Verdict
# In the order of the faults.
EXPECTED = {
    "duckdb": (RIGHT, RIGHT, RIGHT, WRONG),
    "duckdb-partitions": (RIGHT, WRONG, WRONG, WRONG),
    "coset": (RIGHT, NAMED, NAMED, REFUSED),
}
# They start servers.
STREAMS = {"kafka-streams": (RIGHT, WRONG, WRONG, WRONG)}
SPARK = {
    "spark": (RIGHT, RIGHT, RIGHT, WRONG),
    "spark-buckets": (RIGHT, WRONG, WRONG, WRONG),
    "spark-streaming": (RIGHT, RIGHT, RIGHT, WRONG),
}
Found = Callable[[str], Mapping[Fault, Outcome]]


@pytest.fixture(scope="module")
def found_by(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What a system made of topics with each fault; it runs once."""
    return cache(lambda system: of_each_fault(system, tmp_path_factory.mktemp(system)))


@pytest.mark.parametrize("system", [*EXPECTED, *(pytest.param(system, marks=pytest.mark.long) for system in STREAMS)])
def test_each_fault_comes_out_as_the_page_says(system: str, found_by: Found) -> None:
    assert_on_the_page(system, (EXPECTED | STREAMS)[system], found_by(system))


@pytest.mark.long
def test_each_fault_comes_out_of_spark_as_the_page_says(found_by: Found) -> None:
    with on_spark.session():
        for system, expected in SPARK.items():
            assert_on_the_page(system, expected, found_by(system))


def assert_on_the_page(system: str, expected: tuple[Verdict, ...], found: Mapping[Fault, Outcome]) -> None:
    assert tuple(outcome.verdict for outcome in found.values()) == expected, system
    assert on_the_page(Part.TOPICS)[SYSTEMS[system][0]] == [found[fault].shown for fault in Fault]


@pytest.mark.long
def test_a_retried_task_comes_out_as_the_page_says(tmp_path: Path) -> None:
    check_retried("coset-function", RIGHT, tmp_path)


@pytest.mark.long
def test_a_retried_task_comes_out_of_spark_as_the_page_says(tmp_path: Path) -> None:
    with on_spark_retried.cluster():
        for system, verdict in (("spark-rand", RIGHT), ("spark-function", REFUSED), ("spark-unchecked", WRONG)):
            check_retried(system, verdict, tmp_path)


def check_retried(system: str, verdict: Verdict, folder: Path) -> None:
    assert retried(system, folder / system).verdict is verdict, system
    assert on_the_page(Part.TASKS)[RETRIED[system][0]][0].startswith(verdict)


def test_coset_gives_the_true_join_after_what_its_refusal_says(found_by: Found) -> None:
    refused = {fault: outcome for fault, outcome in found_by("coset").items() if fault is not Fault.NONE}
    assert [outcome.then for outcome in refused.values()] == [Outcome(RIGHT)] * 3
    assert 'declare hash="crc32"' in " ".join(refused[Fault.HASH].said)
    assert all(said.startswith("stream.gap: payments: ") for said in refused[Fault.LANDED].said)


def test_rows_missing_and_too_many_are_counted() -> None:
    true = Topics.of(Fault.NONE).joined
    row, other = list(true)[:2]
    found = true.copy()
    found.subtract([row])
    found.update([other, other])
    assert Outcome.of(found, true) == Outcome(WRONG, missing=1, many=2)
    assert Outcome.of(found, true).shown == "wrong: 1 missing, 2 too many"


def test_lost_and_doubled_records_are_as_many() -> None:
    payments = Topics.of(Fault.LANDED).records["payments"]
    assert payments.num_rows == Topics.of(Fault.NONE).records["payments"].num_rows
    assert payments.num_rows - len(set(payments["payment_id"].to_pylist())) == 30


@pytest.mark.parametrize("part", Part)
def test_the_page_has_a_row_for_each_system_with_what_it_did(part: Part) -> None:
    rows = on_the_page(part)
    systems = SYSTEMS if part is Part.TOPICS else RETRIED
    assert list(rows) == [title for title, _, _ in systems.values()]
    cell = re.compile(
        r"right|wrong: [\d,]+ (missing|too many)(, [\d,]+ too many)?|refused(, named keys)?(; then right)?"
    )
    assert [one for cells in rows.values() for one in cells if not cell.fullmatch(one)] == []


def test_all_systems_are_right_on_the_page_if_nothing_is_wrong() -> None:
    assert {cells[0] for cells in on_the_page(Part.TOPICS).values()} == {"right"}


@pytest.mark.parametrize(
    ("part", "text", "rows"),
    [
        (
            Part.TOPICS,
            of_topics({"duckdb": {fault: Outcome(WRONG, 1) for fault in Fault}}),
            {"DuckDB, whole topics": ["wrong: 1 missing"] * len(Fault)},
        ),
        (
            Part.TASKS,
            of_tasks({"spark-rand": Outcome(REFUSED, said=("no",))}),
            {"Spark, salted by rand()": ["refused"]},
        ),
    ],
)
def test_a_run_writes_its_part_of_the_page_and_nothing_else(
    part: Part, text: str, rows: dict[str, list[str]], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    put(page, part.command, (text,))
    again = page.read_text()
    put(page, part.command, (text,))
    assert page.read_text() == again
    assert on_the_page(part, again) == rows
    one = f"(?s){part.command} -->.*?<!-- end -->"
    assert re.split(one, again) == re.split(one, PAGE.read_text())
    page.write_text(again.replace(part.command, ""))
    with pytest.raises(ValueError, match="has no line"):
        put(page, part.command, (text,))


def on_the_page(part: Part, page: str | None = None) -> Mapping[str, list[str]]:
    """The cells of each system in the table of a part."""
    table = (PAGE.read_text() if page is None else page).partition(f"{part.command} -->")[2].partition("-->")[0]
    lines = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("|")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines[2:]}
