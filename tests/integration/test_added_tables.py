"""Tables that are added to a pipeline that has published batches: what they lack is asked for by their name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from coset.batches.backfills.actions import Asked, begin
from coset.testing.runs import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.diff.plan_diff import diff
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from tests.asked_of_duckdb import is_its_query

BEGIN = datetime.fromisoformat("2026-11-01")
SUMS = "sum(n)::BIGINT AS n"
Add = Callable[[Pipeline, dict[str, Flow]], None]


def records(batch: int, keys: range) -> list[dict[str, object]]:
    return [{"k": f"k{key}", "n": key, "t": BEGIN + timedelta(days=batch, minutes=key)} for key in keys]


def pipeline(*adds: Add, newest: str = "newest") -> Pipeline:
    made = Pipeline("p", source="s3://lake")
    flows = {
        "s": made.stream("s", key="k", partitions=2, time="t"),
        "u": made.table("u", key="k", partitions=2, kept=True),
    }
    flows["newest"] = flows["s"].latest("t", name=newest)
    flows["newest"].write("newest", mode="upsert")
    flows["s"].join(flows["u"], "s.n AS n, u.n AS m", name="both").write("both")
    for add in adds:
        add(made, flows)
    return made


def lands(batch: int, **more: range) -> dict[str, list[dict[str, object]]]:
    """Each batch has other keys of the stream, and other keys of the table."""
    keys = {"s": range(4 * batch, 4 * batch + 6), "u": range(3 * batch, 3 * batch + 5)} | more
    return {name: records(batch, of) for name, of in keys.items()}


@pytest.fixture
def place() -> Iterator[Trial]:
    with Trial.made(pipeline()) as trial:
        trial.land(lands(0))
        trial.run()
        yield trial


def asked(place: Trial, settings: Settings = DEFAULTS) -> list[tuple[object, object]]:
    """Which tables a plan asks about, each with the steps that begin with it."""
    with pytest.raises(Refused) as refused:
        place.run(settings)
    assert {finding.kind for finding in refused.value.findings} == {Kind.TABLE_BEGINS}
    return [(about["table"], about["steps"]) for about in (dict(finding.about) for finding in refused.value.findings)]


def windows(flow: Flow) -> Flow:
    return flow.windows("count(*) AS c", time="t", every=timedelta(hours=1), name="hours")


LACKS: dict[str, tuple[Add, tuple[str, ...]]] = {
    "the newest": (lambda _, of: of["s"].latest("n", name="most").write("x", mode="upsert"), ("most",)),
    "records": (lambda _, of: of["s"].filter("n >= 0").write("x"), ()),
    "a changelog": (lambda _, of: of["newest"].write("x", mode="changelog"), ()),
    "windows": (lambda _, of: windows(of["s"]).write("x"), ("hours.s",)),
    "some of the newest": (
        lambda _, of: of["newest"].filter("n >= 0", name="some").write("x", mode="upsert"),
        ("x.upsert",),
    ),
}


@pytest.mark.parametrize("name", LACKS)
def test_a_table_that_would_lack_earlier_records_is_begun_by_its_name(name: str, place: Trial) -> None:
    add, steps = LACKS[name]
    place.go_on_with(pipeline(add))
    place.land(lands(1))
    assert asked(place) == [("x", steps)]
    # Another name is no answer.
    assert asked(place, Settings(begin_anew=("newest",), go_on=("x",))) == [("x", steps)]
    place.run(Settings(begin_anew=("x",)))
    ledger = Ledger(store_at(place.root), "p")
    before, now = (ledger.plan(batch) for batch in (0, 1))
    assert before
    assert now
    assert "x is new, without the records of earlier batches" in str(diff(before, now).results)
    # It is asked once.
    place.land(lands(2))
    assert place.run().startswith("Batch 2")
    assert not is_its_query(place, "x")


def of_batch(flow: Flow) -> Flow:
    return flow.aggregate("sum(n)::BIGINT AS n", name="counts")


OF_BATCH: dict[str, tuple[Add, tuple[str, ...]]] = {
    "a row for each batch": (lambda _, of: of_batch(of["s"]).write("x"), ()),
    "totals, of the last batch alone": (
        lambda _, of: of_batch(of["s"]).combine(SUMS, running=True, name="sums").to_stream().write("x", mode="replace"),
        ("sums",),
    ),
}


@pytest.mark.parametrize("name", OF_BATCH)
def test_a_table_of_a_batch_that_lacks_what_earlier_batches_gave_is_asked_about_too(name: str, place: Trial) -> None:
    add, steps = OF_BATCH[name]
    place.go_on_with(pipeline(add))
    place.land(lands(1))
    assert asked(place) == [("x", steps)]
    place.run(Settings(begin_anew=("x",)))


def new_stream(made: Pipeline, of: dict[str, Flow]) -> None:
    made.stream("v", key="k", partitions=2, time="t").join(of["u"], "v.n AS n, u.n AS m", name="seen").write("x")


WHOLE: dict[str, Add] = {
    "all of a table": lambda _, of: of["u"].write("x", mode="replace"),
    "all of a table, upserted": lambda _, of: of["u"].write("x", mode="upsert"),
    "some of a table": lambda _, of: of["u"].filter("n > 1").write("x", mode="replace"),
    "what a step keeps": lambda _, of: of["newest"].write("x", mode="upsert"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_table_that_is_whole_at_once_is_not_asked_about(name: str, place: Trial) -> None:
    place.go_on_with(pipeline(WHOLE[name]))
    place.land(lands(1))
    place.run()
    assert is_its_query(place, "x")
    place.land(lands(2))
    place.run()
    assert is_its_query(place, "x")


def test_a_table_of_a_stream_that_no_batch_read_is_whole_at_once(place: Trial) -> None:
    place.go_on_with(pipeline(new_stream))
    place.land(lands(1, v=range(5)))
    place.run()
    rows = [(row["k"], row["n"], row["m"]) for row in place.tables()["x"]]
    assert rows == [(f"k{n}", n, n) for n in range(5)]


def test_what_the_last_batch_alone_makes_is_right_at_once(place: Trial) -> None:
    place.go_on_with(pipeline(lambda _, of: of_batch(of["s"]).write("x", mode="replace")))
    place.land(lands(1))
    place.run()
    assert [row["k"] for row in place.tables()["x"]] == [f"k{key}" for key in range(4, 10)]


def test_a_step_that_begins_for_a_table_with_rows_begins_for_the_new_one_too(place: Trial) -> None:
    place.go_on_with(pipeline(lambda _, of: of["newest"].filter("n > 2").write("x", mode="upsert"), newest="most"))
    place.land(lands(1))
    with pytest.raises(Refused) as refused:
        place.run()
    (finding,) = refused.value.findings
    assert (finding.kind, dict(finding.about)["step"]) == (Kind.STATE_BEGINS, "most")
    assert "table 'x', which that batch did not write, would lack them too" in finding.what
    place.run(Settings(begin_anew=("most",)))


def appended(table: str) -> Add:
    return lambda _, of: of["s"].select("n", name="all").write(table)


def test_a_renamed_table_is_named_as_it_was() -> None:
    with Trial.made(pipeline(appended("x"))) as place:
        place.land(lands(0))
        place.run()
        place.go_on_with(pipeline(appended("y")))
        place.land(lands(1))
        with pytest.raises(Refused) as refused:
            place.run()
        (finding,) = refused.value.findings
        assert dict(finding.about)["renamed"] == "x"
        assert finding.then.startswith("write 'all' to 'x' again, as it does the same; or to have it whole, make it ")


def test_a_table_that_was_left_out_goes_on_by_its_name_if_it_lacks_something() -> None:
    with Trial.made(pipeline(appended("x"))) as place:
        place.land(lands(0))
        place.run()
        place.go_on_with(pipeline())
        place.land(lands(1))
        place.run()
        place.go_on_with(pipeline(appended("x")))
        place.land(lands(2))
        with pytest.raises(Refused, match="it was left out since batch 0, and its 6 rows lack what") as refused:
            place.run()
        assert refused.value.findings[0].then.endswith("by its name: `coset plan p --go-on x`")
        place.run(Settings(go_on=("x",)))
        assert not is_its_query(place, "x")


def test_a_table_that_was_replaced_is_appended_to_by_its_name() -> None:
    """It has the rows of one batch."""
    replaced = pipeline(lambda _, of: of["s"].select("n", name="all").to_stream().write("x", mode="replace"))
    with Trial.made(replaced) as place:
        for batch in range(2):
            place.land(lands(batch))
            place.run()
        place.go_on_with(pipeline(appended("x")))
        place.land(lands(2))
        assert asked(place) == [("x", ())]
        with pytest.raises(Refused, match="those of the batches before the last are in no file of it") as refused:
            begin(place.pipeline, store_at(place.root), Asked(0, None, DEFAULTS))
        assert [finding.then for finding in refused.value.findings] == [
            "keep its mode, or write to a table of another name"
        ]
        place.run(Settings(go_on=("x",)))
        assert not is_its_query(place, "x")


def test_a_table_that_was_left_out_with_its_stream_lacks_nothing(place: Trial) -> None:
    place.go_on_with(pipeline(new_stream))
    place.land(lands(1, v=range(5)))
    place.run()
    place.go_on_with(pipeline())
    place.land(lands(2))
    place.run()
    place.go_on_with(pipeline(new_stream))
    place.land(lands(3, v=range(5, 7)))
    place.run()
    assert [row["n"] for row in place.tables()["x"]] == [*range(7)]


def test_a_plan_that_was_given_up_is_no_batch_that_wrote_the_table(place: Trial) -> None:
    place.go_on_with(pipeline(appended("x")))
    place.land(lands(1))
    place.run(Settings(begin_anew=("x",)), twice=True)
    assert len(place.tables()["x"]) == 6
    plan = Ledger(store_at(place.root), "p").standing().published
    assert plan is not None
    assert plan.batch > 0
