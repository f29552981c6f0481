"""What a worker has to have: Coset's code, and that of the functions that its tasks call."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.failure import Answer, Failed
from partitioning.values import replace
from spark_jobs import worker_code
from spark_jobs.group import answer
from spark_jobs.worker_code import Wanted, check, wanted_for

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


def test_a_worker_that_has_what_the_driver_has_is_not_refused(rates: Path) -> None:
    wanted = wanted_for([PATH])
    assert list(wanted.functions) == [PATH]
    check(wanted)


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


def test_code_that_is_not_here_is_not_wanted_and_not_missed(rates: Path) -> None:
    assert wanted_for(["shop.nowhere:rated", "elsewhere:rated"]).functions == {}
    check(replace(wanted_for([]), functions={"shop.nowhere:rated": "sha256:0"}))
