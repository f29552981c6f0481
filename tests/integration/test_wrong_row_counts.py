"""A batch that would take most of the rows of a table or a step away is refused until it is asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.histories import Click, History, total
from tests.judged import KEEP, Refusal, caught_by, refusal, saying
from tests.logs import log_of
from tests.running import next_batch, run_and_publish, run_groups

Write = Callable[[Flow], object]


def count(store: Store, table: str = "totals") -> int:
    return len(log_of(store, table).to_pyarrow_table())


class Clicks:
    """A store into which clicks of keys arrive, and pipelines of one name that write something of them."""

    def __init__(self, store: Store, docs: Path) -> None:
        self.store, self._docs, self._minute = store, docs, 0

    def pipeline(self, *writes: Write) -> Pipeline:
        made = Pipeline("kept", source=f"{self.store.root}/topics")
        clicks = made.stream("clicks", key="k", partitions=4)
        for write in writes:
            write(clicks)
        return made

    def arrive(self, keys: Iterable[int]) -> None:
        self._minute += 1
        clicks = [Click(f"key-{number}", number, self._minute) for number in keys]
        History(self.store, self._docs).land(clicks, [], 4)

    def planned(self, *writes: Write, settings: Settings = DEFAULTS) -> BatchRef:
        return next_batch(self.pipeline(*writes), self.store.root, settings)

    def batch(self, keys: Iterable[int], *writes: Write, settings: Settings = DEFAULTS) -> None:
        self.arrive(keys)
        run_and_publish(self.planned(*writes, settings=settings), self._docs)


@pytest.fixture
def clicks(store: Store, tmp_path: Path) -> Clicks:
    return Clicks(store, tmp_path)


def totals(flow: Flow) -> None:
    total(flow).write("totals", mode="upsert")


def totals_under_another_name(flow: Flow) -> None:
    counted = flow.aggregate("count(*) AS n, max(id) AS last")
    renamed = counted.combine("sum(n)::BIGINT AS n, max(last) AS last", running=True, name="sums")
    renamed.write("totals", mode="upsert")


def last(flow: Flow) -> None:
    flow.aggregate("count(*) AS n, max(id) AS last", name="last").to_stream().write("last", mode="upsert")


def now(flow: Flow) -> None:
    flow.aggregate("count(*) AS n", name="now").write("now", mode="replace")


def appended(flow: Flow) -> None:
    total(flow).to_stream().write("totals")


def living(flow: Flow) -> None:
    flow.latest("seen", name="living").write("living", mode="upsert", deletes="extract(minute FROM seen) > 1")


def refused(plan: Callable[[], object]) -> list[tuple[str, str]]:
    """What is said, and what is next."""
    with pytest.raises(Refused) as error:
        plan()
    return [(finding.what, finding.then) for finding in error.value.findings]


def test_an_upserted_table_that_is_left_out_and_comes_back_keeps_its_rows_until_they_are_asked_for(
    clicks: Clicks, store: Store
) -> None:
    clicks.batch(range(120), last, now)
    clicks.arrive(range(120))
    # Its rows are kept by a step of its own.
    ((what, _),) = refused(lambda: clicks.planned(now))
    assert what == "step 'last.upsert' kept 120 rows, and the batch would go on without them"
    clicks.batch([], now, settings=Settings.parse(take_away=["last.upsert"]))
    clicks.arrive([1])
    ((what, then),) = refused(lambda: clicks.planned(last, now))
    assert "table 'last' has 120 rows and would have only those of keys that come from now on" in what
    assert "`coset plan kept --begin-anew last.upsert`" in then
    assert refused(lambda: preview(clicks.pipeline(last, now), store))
    assert (Ledger(store, "kept").plan(2), count(store, "last")) == (None, 120)
    # As it says. It is asked for once, and the check takes it for asked too.
    asked = Settings.parse(begin_anew=["last.upsert"], take_away=["now"])
    clicks.batch([2], last, now, settings=asked)
    assert count(store, "last") == 2


@pytest.mark.long
def test_a_table_below_a_renamed_step_keeps_its_rows_until_they_are_asked_for(clicks: Clicks, store: Store) -> None:
    clicks.batch(range(200), totals)
    clicks.arrive([1])
    ((what, _),) = refused(lambda: clicks.planned(totals_under_another_name))
    assert "table 'totals' has 200 rows" in what
    assert count(store) == 200
    clicks.batch([2], totals_under_another_name, settings=Settings(begin_anew=("sums",)))
    assert count(store) == 2
    clicks.batch([3], totals_under_another_name)
    assert count(store) == 3


def test_what_a_step_kept_is_not_left_behind_unasked(clicks: Clicks) -> None:
    clicks.batch(range(200), appended, now)
    clicks.batch(range(150), appended, now)
    clicks.arrive([1])
    ((what, then),) = refused(lambda: clicks.planned(now))
    assert what == "step 'totals' kept 200 rows, and the batch would go on without them"
    assert then == "keep the step as it was; or, if they may go, `coset plan kept --take-away totals`"
    clicks.planned(now, settings=Settings.parse(take_away=["totals"]))


def test_a_few_rows_that_a_step_kept_may_be_left_behind(clicks: Clicks) -> None:
    clicks.batch(range(99), appended, now)
    clicks.arrive([1])
    clicks.planned(now)


def test_how_much_may_go_can_be_set(clicks: Clicks) -> None:
    clicks.batch(range(99), appended, now)
    clicks.arrive([1])
    careful = Settings.read("far_fewer = {rows = 20, percent = 10}", "settings.toml")
    assert refused(lambda: clicks.planned(now, settings=careful))
    careless = Settings.read("take_away = ['totals']\nfar_fewer = {rows = 20}", "settings.toml")
    clicks.planned(now, settings=careless)


def test_what_is_asked_for_has_to_be_a_table_or_a_step(clicks: Clicks) -> None:
    clicks.arrive([1])
    ((what, then),) = refused(lambda: clicks.planned(totals, settings=Settings.parse(take_away=["total"])))
    assert what == "'total' is no table or step of the pipeline"
    assert "totals" in then


def test_an_open_batch_says_that_it_was_not_asked_for(clicks: Clicks, store: Store) -> None:
    clicks.arrive([1])
    clicks.planned(totals)
    asked = Settings.parse(take_away=["totals"], begin_anew=["totals"], go_on=["totals"])
    _, said = steps.plan(clicks.pipeline(totals), store.root, asked)
    assert "the stored plan is used, the requested take-away and begin-anew and go-on ignored: replan the batch" in said


def test_an_open_batch_keeps_what_a_step_kept_until_it_is_planned_anew_with_its_name(
    clicks: Clicks, store: Store
) -> None:
    clicks.batch(range(4), totals)
    clicks.arrive([1])
    clicks.planned(totals)
    asked = Settings.parse(begin_anew=["totals", "sums"], take_away=["totals"])
    pipeline = clicks.pipeline(totals_under_another_name)
    _, said = steps.plan(pipeline, store.root, asked)
    assert "the requested take-away and begin-anew ignored: replan the batch to have them" in said
    _, ref, said = steps.replan(pipeline, store.root, asked, "as it said")
    assert ref is not None
    assert ref.load()[1].anew == ("sums",)
    # The same again is what it has.
    _, said = steps.plan(pipeline, store.root, Settings.parse(begin_anew=["sums"], take_away=["totals"]))
    assert said.endswith("it continues as it was planned")


@caught_by(KEEP)
@pytest.mark.parametrize(("table", "write", "keys"), [("now", now, 99), ("living", living, 101)])
def test_a_table_that_would_have_far_fewer_rows_or_of_which_most_are_deleted_is_refused(
    clicks: Clicks, table: str, write: Write, keys: int
) -> Refusal:
    clicks.batch(range(200), write)
    clicks.arrive(range(keys))
    ref = clicks.planned(write)
    run_groups(ref)
    return saying(refusal(ref), f"- {table}: it has 200 rows, and would have 99 after the batch")


def test_a_batch_that_takes_half_of_the_rows_is_published(clicks: Clicks, store: Store) -> None:
    clicks.batch(range(200), now, living)
    clicks.batch(range(100), now, living)
    assert (count(store, "now"), count(store, "living")) == (100, 100)
    clicks.batch([1], now, living, settings=Settings.parse(take_away=["now"]))
    assert (count(store, "now"), count(store, "living")) == (1, 100)


@pytest.mark.long
def test_the_next_step_of_a_batch_that_was_refused_when_it_had_run_works(clicks: Clicks, store: Store) -> None:
    clicks.batch(range(200), now)
    clicks.arrive([1])
    ((_, then),) = refused(lambda: run_and_publish(clicks.planned(now)))
    assert "or, if they may go, `coset replan kept --take-away now --why '…'`" in then
    asked = Settings.parse(take_away=["now"])
    _, ref, _ = steps.replan(clicks.pipeline(now), store.root, asked, "the shop has closed")
    assert ref is not None
    run_and_publish(ref)
    assert count(store, "now") == 1


def test_a_plan_says_how_many_rows_its_tables_have(clicks: Clicks) -> None:
    clicks.batch(range(200), totals, now)
    clicks.arrive([1])
    ref = clicks.planned(totals, now)
    assert ref.load()[1].held == {"totals": 200, "now": 200}
    (line,) = (line for line in steps.plan_page(ref).splitlines() if line.startswith("| totals | totals | upsert"))
    assert "| 200 |" in " ".join(line.split())
