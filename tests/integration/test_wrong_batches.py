"""Each expectation of the proof can fail: a real batch, made wrong before it is audited, is refused by that one.

What is made wrong is the stored plan, a landed file, the kernel, a receipt or a table's log; never an audit table. The
wrong batches lie in the files beside this one, by what is wrong with them.
"""

from __future__ import annotations

import pkgutil
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from great_expectations.expectations.expectation import Expectation

import expectations
from coset.sources.reader import Batch
from expectations.coverage import ExpectNoRecordToBeSetAside
from expectations.ready_made import FigureExpectation
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from spark_jobs.engine.take import LEFT, Taken
from tests.integration.test_changed_state import Changing, clicks, tallied
from tests.integration.test_wrong_changes import second
from tests.judged import CAUGHT, refusal, results
from tests.real_batches import TAILS, delays, land_delays, ran, spoil_kernel, stored
from tests.running import run_and_publish
from tests.unusable import home, land, line, totals

_PROOF = Path(__file__).parents[2] / "docs" / "internals" / "proof.md"


@pytest.fixture
def landed(store: Store) -> Store:
    return land_delays(store)


def proof_expectations() -> set[str]:
    """The names of all expectations that the product defines, but for those that others are derived from, those that
    only pipelines ask, and the one that is a warning."""
    modules = [import_module(module.name) for module in pkgutil.walk_packages(expectations.__path__, "expectations.")]
    defined = (kind for module in modules for kind in vars(module).values() if isinstance(kind, type))
    return {
        kind.expectation_type
        for kind in defined
        if issubclass(kind, Expectation)
        and kind.__module__.startswith("expectations.")
        and not kind.__subclasses__()
        and not issubclass(kind, FigureExpectation | ExpectNoRecordToBeSetAside)
    }


def test_a_batch_that_nothing_is_wrong_with_meets_every_expectation(landed: Store, tmp_path: Path) -> None:
    asked = set[str]()
    land(landed, 0, 0, [line(next(name for name in TAILS if home(name) == 0), 1, 0)])
    for made in (delays(landed), newest_delays(landed), joined_in_time(landed), totals(landed)):
        ref = stored(landed, made)
        run_and_publish(ref, tmp_path)
        assert all(result["success"] for result in results(ref))
        asked |= {result["expectation"] for result in results(ref)}
    _, ref = second(landed, tmp_path)
    run_and_publish(ref, tmp_path)
    asked |= {result["expectation"] for result in results(ref) if result["success"]}
    changing = Changing(landed, tmp_path)
    changing.batch(tallied(), clicks(*range(12)))
    ref = changing.planned(tallied("with_twice"), clicks(1))
    run_and_publish(ref, tmp_path)
    asked |= {result["expectation"] for result in results(ref) if result["success"]}
    assert asked - {"expect_no_record_to_be_set_aside"} == proof_expectations()


def newest_delays(store: Store) -> Pipeline:
    """A table whose rows take the place of others."""
    made = Pipeline("newest", source=f"{store.root}/topics")
    flights = made.stream("flights", key="tailnum", partitions=8, null_keys="drop")
    flights.aggregate("max(delay) AS delay", name="newest").write("newest", mode="replace")
    return made


def joined_in_time(store: Store) -> Pipeline:
    """Flights of which some find no plane in time."""
    made = Pipeline("timely", source=f"{store.root}/topics")
    times = "make_timestamp_ms(delay)", "make_timestamp_ms(seats)"
    flights, planes = (
        made.stream(name, key="tailnum", partitions=count, null_keys="drop", time=time)
        for name, count, time in zip(("flights", "planes"), (8, 4), times, strict=True)
    )
    flights.join_within(planes, "seats", times=times, within=timedelta(minutes=1), how="left").write("timely")
    return made


def wrong_batches() -> dict[str, set[str]]:
    """The tests that make a batch wrong for each expectation, which alone refuses it."""
    for path in Path(__file__).parent.glob("test_wrong_*.py"):
        import_module(f"tests.integration.{path.stem}")
    return CAUGHT


def test_every_expectation_of_the_proof_has_a_batch_that_it_alone_refuses() -> None:
    assert proof_expectations() == wrong_batches().keys()


def test_the_docs_name_for_each_expectation_a_batch_that_it_alone_refuses() -> None:
    section = _PROOF.read_text().partition("### Which batch fails it")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(expect_\w+)` \| `(test_\w+)` \| .+ \|$", section, re.MULTILINE)
    assert sorted(expectation for expectation, _ in rows) == sorted(proof_expectations())
    for expectation, test in rows:
        assert test in wrong_batches()[expectation]


def test_rows_that_a_user_does_not_expect_are_refused(landed: Store, tmp_path: Path) -> None:
    seats = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 38}}
    said = refusal(ran(landed, delays(landed, expect=[seats])), tmp_path)
    assert said.failed == ("expect_column_values_to_be_between",)
    assert "Result table delays, not met: seats values must be less than or equal to 38." in said.findings[0]
    home = placement_hash("N39")
    assert f"39 of key 'N39' (its key is in flights-{home % 8} at offset" in said.findings[0]


def test_what_was_refused_is_published_once_it_is_right(
    landed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_: Batch, seen: Taken) -> None:
        seen.dispositions[:1] = LEFT

    with monkeypatch.context() as patch:
        spoil_kernel(patch, lose)
        ref = ran(landed, delays(landed))
    refusal(ref, tmp_path)
    run_and_publish(ref, tmp_path)
    ledger, plan = ref.load()
    verdict = ledger.verdict(plan.batch)
    assert verdict is not None
    assert verdict.attempt == 1
    assert all(result["success"] for result in results(ref, attempt=1))
