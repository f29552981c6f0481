"""The benchmark: all parties have the same rows, who notices faults, and the pages say what was reached."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import upserting, upserts
from bench.__main__ import main, on_page
from bench.figures import Answers, put
from bench.measure import cpu_of_all, measured
from bench.noticed import on_spark, on_spark_retried
from bench.noticed.__main__ import PAGE, Part, of_each_fault, of_tasks, of_topics, retried
from bench.noticed.outcome import RETRIED, SYSTEMS, Outcome, Verdict
from bench.noticed.topics import Fault, Topics
from bench.party import PARTIES
from bench.plots import drawn, plots
from bench.targets import verdicts
from bench.upserts import Upserted
from bench.workload import Query, Workload
from tests.goldens import expect_golden

BY_POINT = (Query.BY_RECORDS, Query.BY_SHARE)
PLOTTED = {Query.ELASTIC, Query.BATCHES, Query.BY_RECORDS, Query.BY_SHARE}


@pytest.fixture
def environment() -> Iterator[None]:
    """The environment is afterwards as it was: the benchmark says there where its own server is."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.long
@pytest.mark.timeout(2700)
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("queries", "parties"),
    [
        (BY_POINT, ("duckdb", "duckdb-cosets", "polars")),
        (BY_POINT, ("coset", "coset-unsplit", "pyspark", "duckdb-cosets")),
        (tuple(query for query in Query if query not in BY_POINT), tuple(PARTIES)),
    ],
)
def test_all_parties_have_the_same_rows_and_are_on_the_page(
    queries: tuple[Query, ...], parties: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_in(tmp_path)
    asked = ["--size", "small", "--runs", "2", "--only", *parties, "--query", *queries, "--page", str(page)]
    assert main(asked) == 0
    text = page.read_text()
    assert [query for query in Query if f"## `{query}`: " in text] == list(queries)
    assert [query for query in Query if f" -->{query}<!-- " in text] == [
        query for query in Query if query not in queries
    ]
    assert text.count("rows each, all the same") == len(queries)
    assert [PARTIES[party].title for party in parties if f"| {PARTIES[party].title} |" not in text] == []
    merged = text.partition("## `merged`")[2].partition("<!-- end -->")[0]
    assert ("; 1 of 1 targets reached" in merged) == (Query.MERGED in queries)
    assert ("| party | 100 M: CPU s | wall s | peak MiB |" in text) == (Query.BY_RECORDS in queries)
    assert ("| party | Zipf: CPU s | wall s | peak MiB |" in text) == (Query.BY_SHARE in queries)
    plotted = {Query(file.stem.removeprefix("beside-")) for file in (tmp_path / "pictures").iterdir()}
    assert plotted == (PLOTTED & set(queries) if "coset" in parties else {Query.BY_RECORDS}), "others have no task"


@pytest.mark.long
@pytest.mark.usefixtures("environment")
def test_a_party_that_fails_at_some_number_of_records_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_in(tmp_path, Query.BY_RECORDS)
    # It finds no room for its results.
    blocked = tmp_path / ".coset" / "bench" / "small" / "results" / "by-records" / "polars" / "30"
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    asked = ["--size", "small", "--only", "duckdb", "polars", "--page", str(page)]
    assert main(asked) == 1
    assert "| Polars | failed |  |  |" in page.read_text()
    assert "- FAILED: Polars at 30 M" in page.read_text()


def page_in(folder: Path, *queries: Query) -> Path:
    """A page with a place for the figures of these queries, or of all."""
    page = folder / "internals" / "page.md"
    page.parent.mkdir()
    (folder / "pictures").mkdir()
    page.write_text(
        "".join(f"<!-- figures of python -m bench --query {query} -->{query}<!-- end -->" for query in queries or Query)
    )
    return page


def test_processes_that_end_while_they_are_measured_have_their_time() -> None:
    before = os.times()
    with subprocess.Popen(["sh", "-c", "for _ in $(seq 400); do env true | env true; done"]) as ending:
        with measured() as cost:
            while ending.poll() is None:
                cpu_of_all(os.getpid())
        user, system, *of_children = (now - then for now, then in zip(os.times()[:4], before[:4], strict=True))
    assert sum(of_children) > 0.2
    # What else this process has started may have computed meanwhile.
    assert cost.cpu > user + system + sum(of_children) - 0.1
    with pytest.raises(FileNotFoundError):
        cpu_of_all(ending.pid)


def test_memory_that_processes_share_counts_once_and_is_the_most_that_they_had_at_once() -> None:
    size = 200 << 20
    code = f"import os, time; held = b'x' * {size}; os.fork(); os.fork(); time.sleep(1); print(held[-1])"
    one_after_the_other = [sys.executable, "-c", code]
    with measured() as cost:
        for _ in range(2):
            subprocess.run(one_after_the_other, check=True, stdout=subprocess.DEVNULL)
    with measured() as idle:
        pass
    assert 0.9 * size < cost.memory - idle.memory < 1.6 * size
    # What samples it is none of its processes.
    assert idle.cpu < 0.1


def test_a_batch_that_lies_beside_the_data_writes_less_and_figures_say_how_much(tmp_path: Path) -> None:
    files = list(upserts.files_made(tmp_path, 2000, 2, 5))
    found = {}
    for name in ("coset-rewrite", "coset-beside"):
        (folder := tmp_path / name).mkdir()
        found[name] = Upserted(list(upserting.DOES[name](folder, files)))
    rewritten, beside = found.values()
    assert 0 < beside.of("table") < rewritten.of("table") < rewritten.of("written")
    found["coset-beside"].readings["duckdb-reads"] = [[{"cpu": 0.5, "wall": 1.0}], [{"cpu": 0.25, "wall": 2.0}]]
    head, first, second, failed = upserts.figures(found, ["coset-rewrite", "coset-beside", "delta"])
    assert len(head) == len(first) == len(second) == len(failed)
    assert first[5:7] == ("1.000", "1.000")
    assert second[5] == f"{beside.of('written') / rewritten.of('written'):.3f}"
    assert second[-2:] == ("0.50 / 1.00 → 0.25 / 2.00", "")
    assert failed[1] == "failed"


@pytest.mark.long
@pytest.mark.timeout(2700)
@pytest.mark.usefixtures("environment")
def test_all_systems_upsert_the_same_rows(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures of python -m bench.upserts -->\n<!-- end -->\n")
    assert upserts.main(["--keys", "2000", "--batches", "2", "--changed", "50", "--page", str(page)]) == 0
    text = page.read_text()
    assert "2 batches of 50 of 2,000 keys; all readers found the same rows" in text
    assert "failed" not in text
    assert all(title in text for title in upserts.SYSTEMS.values())


def test_each_query_has_parties_that_answer_it() -> None:
    assert [query for query in Query if sum(query in party.answers for party in PARTIES.values()) < 3] == []


def answers(query: Query, **cpu: list[float]) -> Answers:
    """Answers of parties whose runs took so many CPU seconds."""
    parties = {party.replace("_", "-"): costs(query, runs) for party, runs in cpu.items()}
    return Answers(query, "small", parties)


def costs(query: Query, cpu: list[float]) -> dict[str, Any]:
    """What they took at each point, in the order of the runs."""
    runs = Workload.of("small", Path(), query).runs(len(cpu) if len(query.points) == 1 else 2)
    points: dict[str, Any] = {}
    for (stretch, at), took in zip(runs, cpu, strict=True):
        left = {"moved": 0, "moved_records": 1_001, "longest": 2.0, "checksums": [5, 1], "runs": []}
        point = points.setdefault(at.point.name, left)
        point["runs"].append({"stretch": stretch, "cpu": took, "wall": took, "memory": 0, "server": 0.0})
    return points


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (answers(Query.COUNTED, coset=[9, 1, 3, 2], pyspark=[9, 10, 10, 10]), ["reached: Coset, proved: 0.20 times"]),
        (answers(Query.COUNTED, coset=[9, 2.1], pyspark=[9, 10]), ["MISSED: Coset, proved: 0.21 times"]),
        (answers(Query.COUNTED, coset=[9, 1.3], coset_unproved=[9, 1]), ["MISSED: the proof costs 0.30"] * 2),
        (answers(Query.ELASTIC, coset=[9, 1, 1, 1.5, 2.1]), ["reached: Coset, proved: F = 4 takes 1.50", "MISSED"]),
        (answers(Query.MERGED, coset=[9, 1]), ["MISSED: Coset moves 1,001 records, to reach 1,000"]),
        (answers(Query.HOT, coset=[9, 1]), ["MISSED: the longest task took 2.00"]),
        (
            answers(Query.BY_RECORDS, coset=[9, 1, 1, 1, 1, 2], duckdb=6 * [1.0]),
            ["MISSED: Coset, proved: 2.00 times the CPU"],
        ),
        (
            answers(
                Query.BY_SHARE, coset=[9, *(10 * [1.03]), *(5 * [1.5])], coset_unsplit=[9, *(10 * [1.0]), *(5 * [1.0])]
            ),
            ["MISSED: where no key is hot, to split costs 0.030 ", "MISSED: 0 %: the longest task took 2.00"]
            + [f"MISSED: {point}: the longest" for point in ("10 %", "20 %", "40 %", "60 %", "Zipf")],
        ),
        (
            answers(Query.RESCALED, coset_resident=[9, 1, 3], streaming=[9, 9, 2]),
            ["MISSED: Coset, whole batches, resident: 1.50 times"],
        ),
    ],
)
def test_what_is_reached_is_said(found: Answers, said: list[str]) -> None:
    lines = [line for line in verdicts(found) if not line.endswith("bytes, to reach 0")][1:]
    assert [line[: len(start)] for line, start in zip(lines, said, strict=True)] == said


def test_the_page_says_what_decides_and_what_was_missed(tmp_path: Path) -> None:
    page = page_in(tmp_path)
    lines = list(on_page(answers(Query.HOT, coset=[9, 1], pyspark=[9, 10], comet=[9, 1]), page))
    assert lines[2:6] == [
        "| party | warm: CPU s | wall s | peak MiB |",
        "| --- | --: | --: | --: |",
        "| Coset, proved | 1.00 | 1.00 | 0 |",
        "| plain PySpark 4.2, adaptive | 10.00 | 10.00 | 0 |",
    ]
    assert [line for line in lines if line.endswith("; 1 of 3 targets reached")]
    assert [line for line in lines if line.startswith("- MISSED")] == [
        "- MISSED: Coset, proved: 1.00 times the CPU of Spark 3.5 with Comet 0.12, warm, to reach 0.5",
        "- MISSED: the longest task took 2.00 times the records of the mean, to reach 1.3",
    ]


def test_other_rows_are_told() -> None:
    found = answers(Query.HOT, duckdb=[1, 1], polars=[1, 1])
    assert found.same
    found.parties["polars"]["warm"]["checksums"] = [5, 2]
    assert not found.same
    assert next(verdicts(found)).startswith("results: 5 rows each, they DIFFER")


def test_a_plot_has_a_line_for_each_party_and_names_it() -> None:
    plot = drawn("CPU seconds", "batches before", {"one": [(0, 1), (10, 2)], "the other": [(0, 1), (10, 4)]})
    ElementTree.fromstring(plot)
    lines = [line for line in plot.splitlines() if line.startswith("<polyline") and "axis" not in line]
    assert lines == [
        '<polyline class="stream" points="56,198 500,147"/>',
        '<polyline class="exchange" points="56,198 500,44"/>',
    ]
    assert plot.count(">one<") == plot.count(">the other<") == 1


def test_only_growing_costs_are_plotted(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    page = tmp_path / "internals" / "page.md"
    assert list(plots(answers(Query.COUNTED, coset=[1, 1]), page)) == []
    shown = list(plots(answers(Query.BATCHES, coset_resident=[1.0] * 6), page))
    assert shown[-1].endswith("(../pictures/beside-batches.svg)")


def test_a_logarithmic_plot_has_the_same_way_between_one_and_ten_as_between_ten_and_a_hundred() -> None:
    many = {f"party {number}": [(1, 4), (10, 2), (100, 1 / 2**number)] for number in range(6)}
    expect_golden("plot_logarithmic.svg", drawn("CPU seconds", "millions of views", many, logarithmic=True))


def test_a_plot_may_have_one_point() -> None:
    assert "<polyline" in drawn("CPU seconds", "batches before", {"one": [(5, 1)]})


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
