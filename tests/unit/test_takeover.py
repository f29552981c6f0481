"""`coset takeover` without a store: what Samza's CheckpointTool printed, as the [starts] of a settings file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from coset import Settings
from partitioning.samza.checkpoints import bucket_of
from tests.commands import coset
from tests.samza import answers

HALVES = """
# Written by Samza's CheckpointTool
tasknames.Partition 0_0_2.systems.kafka.streams.views.eu.partitions.0=50
tasknames.Partition 0_1_2.systems.kafka.streams.views.eu.partitions.0=20
tasknames.Partition 1_0_2.systems.kafka.streams.views.eu.partitions.1=41
tasknames.Partition 0.systems.kafka.streams.rates.partitions.0=7
tasknames.Partition 0.systems.kafka.streams.rates.partitions.1=9
"""


def takeover(folder: Path, text: str, *words: str) -> Result:
    file = folder / "offsets.properties"
    file.write_text(text)
    return coset("takeover", str(file), *words)


def starts(folder: Path, text: str, *words: str) -> dict[str, Any]:
    result = takeover(folder, text, "--json", *words)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refused(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (3, "")
    return result.stderr


def test_the_starts_are_a_settings_file_and_what_is_read_again_is_in_its_comments(tmp_path: Path) -> None:
    result = takeover(tmp_path, HALVES, "--stream", "views.eu=3", "--stream", "rates=2")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "# From offsets.properties: 5 checkpoints of 4 tasks.",
        "[starts]",
        "# read again: views.eu-0@[21,51) of key buckets 0 out of 2",
        '"views.eu-0" = 21',
        "# read again: views.eu-1@[0,42) of key buckets 0 out of 2",
        "# views.eu-1 starts at its beginning",
        "# views.eu-2 starts at its beginning",
        "rates-0 = 8",
        "rates-1 = 10",
    ]
    assert Settings.read(result.stdout, "offsets.toml").starts == {"views.eu-0": 21, "rates-0": 8, "rates-1": 10}


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md").read_text()
    (shown,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    lines = [line.removeprefix("... ") for line in page.splitlines() if line.startswith("... tasknames.")]
    assert takeover(tmp_path, "\n".join(lines), "--stream", "views=2").stdout == shown


def test_programs_are_told_the_same(tmp_path: Path) -> None:
    assert starts(tmp_path, HALVES, "--stream", "views.eu=2") == {
        "starts": {"views.eu-0": 21},
        "partitions": [
            {"partition": "views.eu-0", "start": 21, "again": [{"start": 21, "end": 51, "buckets": [0], "of": 2}]},
            {"partition": "views.eu-1", "start": 0, "again": [{"start": 0, "end": 42, "buckets": [0], "of": 2}]},
        ],
        "without_checkpoints": [],
        "not_asked_for": ["kafka.rates"],
    }


def test_streams_that_were_not_asked_for_or_are_of_two_systems_are_named(tmp_path: Path) -> None:
    result = takeover(tmp_path, HALVES, "--stream", "rates=2")
    assert "# kafka.views.eu has checkpoints, but is none of these streams." in result.stdout
    text = HALVES + "tasknames.Partition 0.systems.old.streams.rates.partitions.0=3\n"
    assert "rates is a stream of several systems: kafka, old" in refused(
        takeover(tmp_path, text, "--stream", "rates=2")
    )
    assert starts(tmp_path, text, "--stream", "rates=2", "--system", "old")["starts"] == {"rates-0": 4}


def printed(checkpoints: Mapping[str, Mapping[str, str] | None]) -> str:
    """Checkpoints as the CheckpointTool prints them."""
    return "".join(
        f"tasknames.{task}.systems.{system}.streams.{stream}.partitions.{partition}={offset}\n"
        for task, offsets in checkpoints.items()
        for name, offset in (offsets or {}).items()
        for system, stream, partition in [name.split("/")]
    )


def furthest_behind(checkpoints: Mapping[str, Mapping[str, str] | None], name: str) -> int:
    """Where the key of a partition starts that is furthest behind, key slot by key slot: the oracle."""
    done = [
        (*bucket_of(task), int(offsets[name]) + 1)
        for task, offsets in checkpoints.items()
        if offsets and name in offsets
    ]
    slots = range(lcm(1, *(factor for _, factor, _ in done)))
    return min(max((end for bucket, factor, end in done if slot % factor == bucket), default=0) for slot in slots)


def test_every_real_set_of_checkpoints_starts_where_its_slowest_keys_are(tmp_path: Path) -> None:
    """Also where Samza's own rule starts later, and so loses records."""
    taken = lost = 0
    for case in answers("elastic_checkpoints"):
        names = {name for offsets in case["checkpoints"].values() for name in offsets or {}}
        for name in sorted(names):
            _, stream, partition = name.split("/")
            others = {
                task: {where: offset for where, offset in offsets.items() if where == name}
                for task, offsets in case["checkpoints"].items()
                if offsets
            }
            processed = [bucket_of(task) for task, offsets in others.items() if offsets]
            result = takeover(tmp_path, printed(others), "--json", "--stream", f"{stream}={int(partition) + 1}")
            if len(set(processed)) < len(processed):
                assert "both processed" in refused(result), case["id"]
                continue
            expected = furthest_behind(case["checkpoints"], name)
            found = json.loads(result.stdout)["starts"]
            assert found == ({f"{stream}-{partition}": expected} if expected else {}), case["id"]
            taken += 1
            lost += name in case["result"] and int(case["result"][name]) + 1 > expected
    assert taken > 100
    assert lost


def test_all_that_has_no_meaning_is_refused_at_once(tmp_path: Path) -> None:
    assert "'views' is no checkpoint" in refused(takeover(tmp_path, "views\n" + HALVES, "--stream", "rates=2"))
    text = HALVES + "tasknames.Partition 1 1.systems.kafka.streams.rates.partitions.1=9\n"
    said = refused(takeover(tmp_path, text, "--stream", "rates=1", "--stream", "clicks=4"))
    assert "there is a checkpoint of rates-1, but rates has 1 partitions" in said
    assert "there is no checkpoint of clicks" in said
    assert "there are those of kafka.rates, kafka.views.eu" in said
    said = refused(takeover(tmp_path, text, "--stream", "rates=2"))
    assert "the name 'Partition 1 1' does not say which keys the task processed" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "it is not said which streams there are"),
        (("--stream", "rates=2", "--pipeline", "tail_activity"), "the streams are given twice"),
        (("--stream", "rates"), "'rates' is no stream"),
    ],
)
def test_the_streams_have_to_be_given_once(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in refused(takeover(tmp_path, HALVES, *words))


def test_a_file_that_is_not_there_is_named() -> None:
    assert "the checkpoints cannot be read" in refused(coset("takeover", "none.properties", "--stream", "rates=2"))
