"""Numbers that nobody can mean: each is refused with its bound, and why, before anything is made of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coset.batches.runners.choice import runner
from coset.batches.runners.runner import RunnerKind
from coset.cli.app import app, settings_of
from coset.cli.commands import backfills, batches, upkeep  # noqa: F401  they name the commands
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.cosets import assign
from partitioning.errors import Refused
from partitioning.model.schemes import COGROUP, Scheme, SchemeKind
from partitioning.planning.stages.draft import StageDraft
from partitioning.planning.stages.stage_cosets import task_count
from partitioning.sizing.proposal import Targets

HUGE = 10**30
ENDLESS = 10**6000
SUMS = str(Path(__file__).parents[1] / "pipelines" / "kept.py")


def views(partitions: int = 4) -> Any:
    return Pipeline("sums", source="s3://landing/topics").stream("views", key="k", partitions=partitions)


GIVEN: dict[str, Callable[[int], object]] = {
    "scheme tasks": lambda number: Scheme(SchemeKind.TASKS, number),
    "scheme elastic": lambda number: Scheme(SchemeKind.ELASTIC, number),
    "scheme records": lambda number: Scheme(SchemeKind.RECORDS, number),
    "groups": lambda number: Settings.parse(groups=number),
    "limit": lambda number: Settings.parse(limit=number),
    "stream 'views'": views,
    "repartition of views": lambda number: views().repartition(number),
    "combine of part": lambda number: (
        views().partial("count(*) AS n", name="part").combine("sum(n) AS n", fan_in=number)
    ),
    "max_tasks in targets": lambda number: Targets(max_tasks=number),
    "bytes in targets": lambda number: Targets(bytes=number),
}


@pytest.mark.parametrize("number", [HUGE, ENDLESS], ids=["huge", "endless"])
@pytest.mark.parametrize("where", GIVEN)
def test_numbers_that_are_too_large_are_refused_before_memory_is_taken(where: str, number: int) -> None:
    tracemalloc.start()
    with pytest.raises(Refused) as caught:
        GIVEN[where](number)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    (finding,) = caught.value.findings
    assert finding.where == where
    assert " is too large: " in finding.what
    assert finding.then.startswith("use ") or finding.then == "declare the topic's count"


@pytest.mark.parametrize("name", ["groups", "limit", "fan_in", "starts"])
@pytest.mark.parametrize("number", [str(HUGE), "9" * 6000], ids=["huge", "endless"])
def test_so_they_are_in_a_file_of_settings(name: str, number: str) -> None:
    tables = {"fan_in": "[steps.totals]\nfan_in", "starts": "[starts]\nviews-0"}
    with pytest.raises(Refused, match=r"is too large: |it is no TOML: .*limit.* for integer string"):
        Settings.read(f"{tables.get(name, name)} = {number}", "settings.toml")


def test_a_factor_is_bounded_by_its_tasks_and_the_most_are_dealt_quickly() -> None:
    draft = StageDraft(0, (), ())
    assert task_count(draft, COGROUP, [1_000_000], []).cosets == 1_000_000
    with pytest.raises(Refused, match=r"4,000,000 is too large: a plan holds every task"):
        task_count(draft, Scheme.parse("elastic(4)"), [1_000_000], [])
    tasks = assign([("views", 8), ("clicks", 12)], Scheme.parse("tasks(100000)")).tasks
    assert len(tasks) == 100_000


@pytest.mark.parametrize("time", [timedelta.max, timedelta(days=40_000), timedelta.min])
def test_times_that_nobody_can_mean_are_refused(time: timedelta) -> None:
    with pytest.raises(Refused, match="within"):
        views().distinct("id", time="at", within=time)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0])
def test_seconds_that_are_none_are_refused(seconds: float) -> None:
    with pytest.raises(Refused, match="use more than 0"):
        Targets(seconds=seconds)


@pytest.mark.parametrize("memory", ["1XB", "-1GB", "80%", "", "1", "99999999999999TB", "infinity", "nanGB"])
def test_an_amount_of_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(Refused, match="is not an amount of memory") as caught:
        runner(RunnerKind.LOCAL, "local[*]", memory)
    assert caught.value.findings[0].then == "write it as 512MB or 2GB"


@pytest.mark.parametrize(("memory", "wrong"), [("1KB", "too small"), ("99999TB", "too large")])
def test_memory_has_bounds(memory: str, wrong: str) -> None:
    with pytest.raises(Refused, match=wrong):
        runner(RunnerKind.LOCAL, "local[*]", memory)


@pytest.mark.parametrize("memory", ["1GB", "1.5gb", "512m", "2 GiB", "16MB"])
def test_memory_is_written_as_duckdb_takes_it(memory: str) -> None:
    with runner(RunnerKind.LOCAL, "local[*]", memory):
        pass


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("compact", SUMS, "--keep-days", "99999999999999"), "--keep-days"),
        (("compact", SUMS, "--keep-days", "0"), "--keep-days"),
        (("backfill", SUMS, "--from", "0", "--wait-for-live", str(HUGE)), "--wait-for-live"),
        (("backfill", SUMS, "--from", "0", "--groups-at-once", str(HUGE)), "--groups-at-once"),
        (("run", SUMS, "--groups", str(HUGE)), "groups"),
        (("assign", "--stream", "views=8", "--tasks", str(HUGE)), "scheme tasks"),
    ],
)
def test_numbers_of_commands_have_bounds(words: tuple[str, ...], where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_STORE", "s3://test/none")
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 3, shown.output
    assert f"where: {where}\n" in shown.stderr
    assert " is too " in shown.stderr


@pytest.mark.parametrize("command", [(), ("run",), ("backfill",)])
def test_help_has_a_short_name(command: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*command, word]) for word in ("-h", "--help"))
    assert short.exit_code == 0, short.output
    assert short.output == long.output


def test_many_tasks_are_told_to_take_a_while_before_they_are_planned(capsys: pytest.CaptureFixture[str]) -> None:
    settings_of(scheme=["tasks(20)"])
    assert capsys.readouterr().err == ""
    settings_of(scheme=["elastic(2)", "flights=tasks(100000)"])
    said = capsys.readouterr().err
    assert " ".join(said.split()) == "plan tasks(100000): to plan so many tasks takes a while, and memory"
