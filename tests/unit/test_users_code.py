"""Code of users that raises, ends its process or is none: it is a finding that names it, wherever it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.hashes import hash_of
from partitioning.imports import imported
from partitioning.kinds import Kind
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.grouping import SizedTask, grouped
from partitioning.planning.partitioners.partitioners import assign_shares, notify
from spark_jobs.engine.hashing import placement_hashes
from tests.shown import tails

HERE = "tests.unit.test_users_code"
TASKS = [SizedTask(TaskRef("views", number), 1, 1, {}) for number in range(3)]


def leaving(*_: object, **__: object) -> None:
    """Ends the process as a script does."""
    sys.exit(0)


def failing(*_: object, **__: object) -> None:
    raise KeyError("no such shop")


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


class Untold(BaseException):
    """Not an Exception, as what ends a coroutine, and without a text."""

    def __str__(self) -> str:
        raise ValueError("there is no text")


def strange(*_: object, **__: object) -> None:
    raise Untold


class Partly:
    """A partitioner that fails in the part it is asked to fail in."""

    def __init__(self, part: str, way: str) -> None:
        self._part, self._fail = part, globals()[way]

    def define(self, *_: object) -> Any:
        return self._fail() if self._part == "define" else ()

    def accepted(self, _: object) -> None:
        self._fail()


def _deal(path: str, **arguments: object) -> object:
    placed = Placement("k", KeyFormat.STRING, MURMUR2, 4)
    ref = PartitionerRef(path, arguments)
    return assign_shares(ref, "views", cosets=4, inputs=(placed,), previous=None, figures={}, batch=0)


def _accepted(way: str) -> None:
    settings = Settings(partitioners={"flights+planes": PartitionerRef(f"{HERE}:Partly", {"part": "", "way": way})})
    notify(tails(), None, Pipeline("tails", source="s3://landing/topics"), settings)


CALLS: dict[str, tuple[Callable[[str], object], Kind]] = {
    "placement": (lambda way: hash_of(f"{HERE}:{way}", "stream 'views'")("N1", "string"), Kind.FUNCTION),
    "placement of many": (lambda way: placement_hashes(pa.array(["N1"]), "string", f"{HERE}:{way}"), Kind.FUNCTION),
    "partitioner made": (lambda way: _deal(f"{HERE}:{way}"), Kind.PARTITIONER),
    "partitioner asked": (lambda way: _deal(f"{HERE}:Partly", part="define", way=way), Kind.PARTITIONER),
    "partitioner told": (_accepted, Kind.PARTITIONER),
    "grouper": (lambda way: grouped(TASKS, f"{HERE}:{way}", 2), Kind.GROUPER),
}


WAYS = {
    "leaving": ("SystemExit: 0", "sys.exit(0)"),
    "failing": ("KeyError: 'no such shop'", 'raise KeyError("no such shop")'),
    "strange": ("Untold: (its text cannot be made: ValueError)", "raise Untold"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", CALLS)
def test_what_it_raises_is_a_finding_that_names_it(call: str, way: str) -> None:
    called, kind = CALLS[call]
    with pytest.raises(Refused) as caught:
        called(way)
    (finding,) = caught.value.findings
    assert finding.kind is kind
    what, line = WAYS[way]
    assert f"failed: {what}" in finding.what
    # The line of the user's own file, wherever that lies.
    number = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.strip() == line)
    assert finding.where.startswith(f"{__file__}:{number} `{line}`, ")
    assert finding.then


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_is_not_its_own(call: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        CALLS[call][0]("interrupted")


def test_a_plan_that_is_stored_counts_though_its_partitioner_fails_to_hear_of_it() -> None:
    with pytest.raises(Refused) as caught:
        _accepted("failing")
    (finding,) = caught.value.findings
    assert "accepted() failed" in finding.what
    assert "the plan is stored" in finding.then


@pytest.mark.parametrize("call", ["placement", "placement of many", "partitioner made", "grouper"])
def test_what_is_no_function_is_said(call: str) -> None:
    with pytest.raises(Refused, match=f"{HERE}:TASKS is no function"):
        CALLS[call][0]("TASKS")


@pytest.mark.parametrize("ends", ["raise SystemExit(0)", "import sys; sys.exit()", "raise ValueError('broken')"])
def test_a_module_that_ends_the_process_cannot_be_imported(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending.py").write_text(ends)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COSET_IMPORTS", "ending")
    with pytest.raises(Refused, match="'ending:hash' cannot be imported") as caught:
        imported("ending:hash", "stream 'views'")
    assert caught.value.findings[0].where == f"{tmp_path / 'ending.py'}:1 `{ends}`, stream 'views'"


def test_code_that_the_process_of_tasks_does_not_have_is_installed_or_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_IMPORTS", "nowhere")
    with pytest.raises(Refused) as caught:
        imported("nowhere.scores:scored", "step 'made'", tasks=True)
    (finding,) = caught.value.findings
    assert finding.where == "step 'made', in the process that runs its tasks"
    assert "ship it: COSET_SHIP=nowhere" in finding.then
