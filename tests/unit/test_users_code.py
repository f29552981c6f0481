"""Code of users: what it raises, which changes of its module count, and what a worker has to have of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.hashes import hash_of
from partitioning.imports import code_of, digest_of, imported
from partitioning.kinds import Kind
from partitioning.model.failure import Answer, Failed
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.grouping import SizedTask, grouped
from partitioning.planning.partitioners.partitioners import assign_shares, notify
from partitioning.values import replace
from spark_jobs import worker_code
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.group import answer
from spark_jobs.worker_code import Wanted, check, wanted_for
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


PATH = "shop.rates:rated"
NO_ORDERS = b"[]"


@pytest.fixture
def rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module of a user's, as a process has it that has just begun."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (file := package / "rates.py").write_text("def rated(v):\n    return v * 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    worker_code._code_here.cache_clear()
    yield file
    worker_code._code_here.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_worker_with_the_drivers_code_or_without_what_is_not_here_is_not_refused(rates: Path) -> None:
    wanted = wanted_for([PATH])
    assert list(wanted.functions) == [PATH]
    check(wanted)
    assert wanted_for(["shop.nowhere:rated", "elsewhere:rated"]).functions == {}
    check(replace(wanted_for([]), functions={"shop.nowhere:rated": "sha256:0"}))


def test_a_worker_with_other_code_of_a_function_is_refused_and_says_on_which_host_and_what_it_has(
    rates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = wanted_for([PATH])
    elsewhere = replace(here, functions={PATH: "sha256:0000000000000000"})
    monkeypatch.setattr("socket.gethostname", lambda: "sea")
    answered = msgspec.json.decode(answer(NO_ORDERS, wanted=elsewhere), type=Answer)
    assert isinstance(answered, Failed)
    (finding,) = answered.error().findings
    assert finding.kind is Kind.WORKER
    assert finding.what == (
        f"the worker on sea has {PATH} with the code {here.functions[PATH]}; wanted is sha256:0000000000000000, "
        "as the driver has it"
    )
    assert finding.where == f"{sys.executable} on sea"
    assert "COSET_SHIP=shop" in str(answered.error())


def test_a_process_that_has_imported_a_module_before_it_was_changed_has_the_old_one(rates: Path) -> None:
    check(wanted_for([PATH]))
    rates.write_text("def rated(v):\n    return v * 5\n")
    with pytest.raises(Refused, match=f"has {PATH} with the code says:"):
        check(wanted_for([PATH]))


def test_all_that_differs_is_told_at_once(rates: Path) -> None:
    here = wanted_for([PATH])
    other = Wanted(replace(here.code, python="2.7"), {PATH: "sha256:0", "shop.rates:nowhere": "sha256:0"})
    with pytest.raises(Refused) as caught:
        check(other)
    assert [finding.what.partition(";")[0].partition(" has ")[2] for finding in caught.value.findings] == [
        str(here.code),
        f"{PATH} with the code {here.functions[PATH]}",
    ]


SOURCE = '''
"""Scores."""
import math
from shop.rates import (euros, pounds)

RATES = {"eur": 1}
RATES["gbp"] = 2

try:
    import fast
except ImportError:
    fast = None


class Table:
    rows: int = 3


def _times(number: int, *, by: float = 1.0) -> float:
    """So many times."""
    return f"{number!r:>{by}}" and number * RATES["eur"] * math.pi


def scored(rows, table=Table):
    return [euros(_times(row)) for row in rows if (fast is None and table.rows)]


def other(rows):
    return rows
'''

SAME = {
    "a comment": ("return rows\n", "return rows  # all\n"),
    "a docstring": ('"""So many times."""', '"""Times."""'),
    "annotations": ("number: int, *, by: float = 1.0) -> float:", "number, *, by=1.0):"),
    "layout": ("if (fast is None and table.rows)]", "if fast is None\n        and table.rows\n    ]"),
    "another function": ("    return rows\n", "    return rows[:1]\n"),
    "an import of something else": ("(euros, pounds)", "(dollars, euros)"),
    "a function more": ("def other", "def another():\n    pass\n\n\ndef other"),
}
OTHER = {
    "itself": ("euros(_times(row))", "euros(_times(row + 1))"),
    "what it calls": ('RATES["eur"] * math.pi', 'RATES["eur"]'),
    "a format": (":>{by}}", ":<{by}}"),
    "a default": ("by: float = 1.0", "by: float = 2.0"),
    "a constant": ('{"eur": 1}', '{"eur": 3}'),
    "a change of a constant": ('RATES["gbp"] = 2', 'RATES["gbp"] = 3'),
    "where something is imported from": ("from shop.rates", "from shop.other_rates"),
    "a field of a class": ("rows: int = 3", "rows: int = 4"),
    "what is tried": ("import fast", "import faster as fast"),
}


@pytest.mark.parametrize("change", SAME)
def test_what_does_not_change_what_a_function_does_does_not_count(change: str) -> None:
    was, now = SAME[change]
    assert was in SOURCE
    assert digest_of(SOURCE.replace(was, now), "scored") == digest_of(SOURCE, "scored")


@pytest.mark.parametrize("change", OTHER)
def test_what_it_uses_of_its_module_counts(change: str) -> None:
    was, now = OTHER[change]
    assert was in SOURCE
    assert digest_of(SOURCE.replace(was, now), "scored") != digest_of(SOURCE, "scored")


DISPATCHED = """
from functools import lru_cache, singledispatch
import registry
from shop.rates import *


class Row:
    n: int = 1


@singledispatch
def area(shape) -> Row:
    return 0


@area.register
def _(shape: int):
    return shape * 2


@registry.add
def unused(shape):
    return 1


def scored(rows: Row):
    return [area(row) for row in rows]
"""


@pytest.mark.parametrize(
    ("was", "now", "counts"),
    [
        ("shape * 2", "shape * 3", True),
        ("shape: int", "shape: str", True),
        ("@area.register", "@area.register(float)", True),
        ("shop.rates", "shop.other_rates", True),
        # What a type says, or is registered elsewhere, is no part of what a function does.
        ("n: int = 1", "n: int = 2", False),
        ("return 1", "return 2", False),
    ],
)
def test_what_a_function_is_dispatched_to_counts(was: str, now: str, counts: bool) -> None:
    assert DISPATCHED.count(was) == 1
    differs = digest_of(DISPATCHED.replace(was, now), "scored") != digest_of(DISPATCHED, "scored")
    assert differs == counts


def test_digests_are_those_of_each_python_and_none_of_what_is_not_defined() -> None:
    # Python 3.11 gave this.
    assert digest_of(SOURCE, "scored") == "says:6abbeeb3da3c3a28"
    assert digest_of(SOURCE, "nobody") is None


FUNCTIONS = """
from {tools} import tallied, timed
import functools


@timed
def decorated(rows):
    return {said}


made = tallied({said})
partial = functools.partial(decorated, {said})
"""
TOOLS = """
def timed(function):
    def called(*given):
        return function(*given)
    return called


def tallied(number):
    def called(*given):
        return number
    return called
"""


def test_what_other_modules_make_of_a_function_is_what_its_own_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COSET_IMPORTS", "said_one,said_two,said_again")
    (tmp_path / "tools_of_said.py").write_text(TOOLS)
    for module, said in (("said_one", 1), ("said_two", 2), ("said_again", 1)):
        (tmp_path / f"{module}.py").write_text(FUNCTIONS.format(tools="tools_of_said", said=said))
    for name in ("decorated", "made", "partial"):
        one, two, again = (code_of(f"{module}:{name}") for module in ("said_one", "said_two", "said_again"))
        assert one == again != two
