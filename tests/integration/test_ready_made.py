"""Ready-made expectations on real batches: each is met by a right one, and not by one that is wrong in its way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coset import Pipeline, Refused, Settings, expect
from coset.batches.backfills.actions import Asked
from coset.reports.site import listed
from coset.testing import run
from coset.testing.runs import Trial
from partitioning.authoring.settings import DEFAULTS
from partitioning.authoring.words import WriteMode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.kinds import Kind
from partitioning.model.measures import READY_MADE, Measured
from tests.backfilled import run_again
from tests.clicked import landed
from tests.commands import succeeded
from tests.followed import told
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish
from tests.there import there

Records = list[dict[str, object]]
LOCAL = ("--runner", "local")
ALL = (
    expect.rows_as_usual(severity="warning"),
    expect.keys_as_usual(severity="warning"),
    expect.few_nulls("late", at_most=0.1, severity="warning"),
    expect.fresh("seen", within="2h", severity="warning"),
    expect.never_falls("amount", severity="warning"),
)


def paid(*expected: dict[str, Any], mode: WriteMode = "append", private: Sequence[str] = ()) -> Pipeline:
    """A table with a row for each order, or for each customer."""
    pipeline = Pipeline("paid", source="s3://landing/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4, private=private)
    rows = orders.select("amount, late, seen::TIMESTAMP AS seen, _offset AS place", name="each")
    if mode == "upsert":
        rows = rows.latest("place", name="newest")
    rows.to_stream().write("paid", mode=mode, expect=expected)
    return pipeline


def orders(count: int, first: int = 0, **of: object) -> Records:
    """Orders of so many customers, just now; what is given is so in all of them."""
    order = {"amount": 5, "late": 1, "seen": ago(minutes=5)} | of
    return [{"customer": f"c{number}"} | order for number in range(first, first + count)]


def ago(**time: float) -> datetime:
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(**time)


def warned(pipeline: Pipeline, *batches: Records, settings: Settings = DEFAULTS) -> Sequence[Sequence[str]]:
    return run(pipeline, *({"orders": batch} for batch in batches), settings=settings).warnings


def test_each_is_met_by_a_right_batch_and_not_by_one_that_is_wrong_in_its_way() -> None:
    right = [orders(count) for count in (20, 22, 20, 19, 20)]
    wrong = {
        "expect_rows_as_usual": orders(20) + orders(20),
        "expect_keys_as_usual": [{**each, "customer": "c1"} for each in orders(20)],
        "expect_few_nulls": orders(17) + orders(3, 17, late=None),
        "expect_fresh": orders(20, seen=ago(hours=3)),
        "expect_never_falls": orders(19) + orders(1, 19, amount=-96),
    }
    assert wrong.keys() == READY_MADE.keys()
    assert {each["type"] for each in ALL} == READY_MADE.keys()
    found = warned(paid(*ALL), *right, *wrong.values(), orders(20))
    assert found[:5] == ((), (), (), (), ())
    rows, keys, nulls, fresh, falls = (sentence for (sentence,) in found[5:10])
    assert rows == "paid gets 40 rows; the 5 batches before had 19 to 22, so that 18 to 22 is usual"
    assert keys == "paid gets 1 distinct key; the 6 batches before had 19 to 22, so that 18 to 22 is usual"
    assert nulls == "in 15 % of the rows of paid, late is null, and at most 10 % may be"
    assert "3 hours before the batch was planned" in fresh
    assert fresh.endswith("UTC); at most 2h is expected")
    assert falls == "the rows that paid gets add -1 to sum(amount), so that it would fall"
    assert found[10] == ()


def test_the_history_plots_what_was_measured(tmp_path: Path) -> None:
    trial = Trial(paid(*ALL), tmp_path)
    for count in (20, 22):
        trial.land({"orders": orders(count)})
        run_and_publish(next_batch(trial.pipeline, trial.root, DEFAULTS), tmp_path / "docs")
    newest, _ = listed(store_at(f"file://{tmp_path}/store"), "paid", "index")
    age = newest["measured"]["paid"].pop("latest(seen)")
    # A plan notes its minute.
    assert 240 <= age < 600
    assert newest["measured"] == {"paid": {"rows": 22, "keys": 22, "nulls(late)": 0.0, "sum(amount)": 110}}
    page = (tmp_path / "docs" / "paid" / "index.html").read_text()
    for title in ("rows, as judged", "distinct keys", "age of the latest seen", "sum of amount"):
        assert f"<figcaption>paid: {title} " in page


def test_nulls_are_as_usual_unless_a_share_is_given_and_fewer_are_right_too() -> None:
    some = [orders(18) + orders(2, 18, late=None)] * 5
    pipeline = paid(expect.few_nulls("late", severity="warning"))
    *_, fewer, more = warned(pipeline, *some, orders(20), orders(15) + orders(5, 15, late=None))
    assert fewer == ()
    assert more == (
        "in 25 % of the rows of paid, late is null; the 6 batches before had 0 % to 10 %, so that up to 11 % is usual",
    )


def test_a_replaced_table_is_held_against_what_it_was_after_the_batch_before() -> None:
    pipeline = paid(expect.never_falls("amount", severity="warning"), mode="replace")
    first, grown, fallen = warned(pipeline, orders(4), orders(4, amount=6), orders(3, amount=7))
    assert first == grown == ()
    assert fallen == ("sum(amount) of paid would be 21; after batch 1 it was 24",)


@pytest.mark.long
def test_an_upserted_table_is_judged_as_it_would_be_after_the_batch() -> None:
    # Ten customers, in several files; then one changes at a time.
    changes = [orders(1, number, amount=6) for number in range(4)]
    found = warned(
        paid(*ALL, mode="upsert"), orders(10), *changes, orders(1, 4, amount=2), orders(2, 0, amount=6, late=None)
    )
    assert found[:5] == ((),) * 5
    assert found[5] == ("sum(amount) of paid would be 51; after batch 4 it was 54",)
    assert found[6] == ("in 20 % of the rows of paid, late is null, and at most 10 % may be",)


@pytest.mark.long
def test_a_backfill_measures_an_upserted_table_as_its_batches_did(tmp_path: Path) -> None:
    trial = Trial(paid(*ALL, mode="upsert"), tmp_path)
    for batch in (orders(10), orders(2, amount=7), orders(3, 8, late=None), orders(1, 4, amount=6)):
        trial.land({"orders": batch})
        trial.run(DEFAULTS)
    store = store_at(f"file://{tmp_path}/store")
    made = trial.pipeline
    request = run_again(made, store, Asked(1, 3, Settings.parse(scheme="tasks(3)")), tmp_path / "docs")
    live, again = Ledger(store, "paid"), Ledger(store, request.name)
    for number in (1, 2, 3):
        first, second = live.verdict(number), again.verdict(number)
        assert first is not None
        assert second is not None
        assert len(second.measured) == len(ALL)
        assert second.measured == first.measured


def test_a_total_of_other_kinds_of_numbers_is_exact_or_good_to_its_last_digits() -> None:
    pipeline = paid(expect.never_falls("amount::DECIMAL(18, 2)", severity="warning"), mode="replace")
    same, less = warned(pipeline, orders(3, amount=0.1), orders(3, amount=0.1), orders(3, amount=0.09))[1:]
    assert same == ()
    assert less == ("sum(amount::DECIMAL(18, 2)) of paid would be 0.27; after batch 1 it was 0.3",)


def test_what_a_row_makes_impossible_could_not_be_judged_and_keeps_its_severity() -> None:
    half = [*orders(2), *orders(1, 2, late=None)]
    text = "if(late IS NULL, 'none', '1')::INTEGER"
    (found,) = warned(paid(expect.never_falls(text, severity="warning"), expect.rows_as_usual()), half)
    assert "it cannot be evaluated: Could not convert string 'none' to INT32" in found[0]
    with pytest.raises(Refused, match="it cannot be evaluated") as refused:
        warned(paid(expect.never_falls(text)), half)
    assert [each.kind for each in refused.value.findings] == [Kind.EXPECTATION_FAILS]


def test_settings_add_and_loosen_without_code() -> None:
    text = """
    [tables.paid]
    expect = [
      {type = "expect_rows_as_usual", severity = "warning"},
      {type = "expect_few_nulls", kwargs = {column = "late", at_most = 0.5}},
    ]
    """
    settings = Settings.read(text, "settings.toml")
    pipeline = paid(expect.rows_as_usual(), expect.few_nulls("late", at_most=0.1))
    half = orders(1) + orders(1, 1, late=None)
    (*_, last) = warned(pipeline, *[half] * 5, half * 4, settings=settings)
    assert last == ("paid gets 8 rows; the 5 batches before had 2, so that 2 to 2 is usual",)
    with pytest.raises(Refused, match="in 50 % of the rows of paid, late is null, and at most 10 % may be"):
        warned(pipeline, half)
    with pytest.raises(Refused, match="there is no table 'unpaid'"):
        warned(pipeline, half, settings=Settings.read(text.replace("tables.paid", "tables.unpaid"), "settings.toml"))


@pytest.mark.parametrize(
    ("expected", "what"),
    [
        (expect.few_nulls("lat"), 'Referenced column "lat" not found'),
        (expect.never_falls("late + random()"), "random gives another result in each task and each run"),
        (expect.never_falls("seen"), "sum"),
        (expect.fresh("late", within="1h"), "late is BIGINT, and no time"),
        (expect.few_nulls("count(late)"), "count would see the records of one task only"),
    ],
)
def test_what_the_columns_do_not_give_is_refused_when_the_batch_is_planned(expected: dict[str, Any], what: str) -> None:
    found = finding_of(warned, paid(expected), orders(2))
    assert (found.kind, what in found.what) == (Kind.EXPECTATION_FAILS, True), found.what
    assert found.where.startswith("table 'paid', ")


def test_figures_that_are_values_of_private_columns_are_refused_when_the_batch_is_planned() -> None:
    with pytest.raises(Refused) as refused:
        warned(paid(*ALL, private=("amount", "seen")), orders(2))
    assert [(found.where, found.what) for found in refused.value.findings] == [
        ("table 'paid', latest(seen)", "verdicts would show a value of the private column seen"),
        ("table 'paid', sum(amount)", "verdicts would show a value of the private column amount"),
    ]
    assert "leave the expectation out" in str(refused.value)
    allowed = (expect.rows_as_usual(), expect.few_nulls("amount", at_most=0.5))
    assert warned(paid(*allowed, private=("amount", "seen")), orders(2)) == ((),)


@pytest.mark.parametrize(
    ("stated", "what"),
    [
        ({"type": "expect_few_nulls", "kwargs": {"column": "late", "at_most": 2}}, "a share is from 0 to 1"),
        ({"type": "expect_fresh", "kwargs": {"column": "seen", "within": "soon"}}, "write 30m, 2h, 1d or 1w"),
        ({"type": "expect_fresh", "kwargs": {"column": "seen"}}, "within"),
        ({"type": "expect_rows_as_usual", "kwargs": {"least": 1}}, "least"),
    ],
)
def test_arguments_that_cannot_be_are_refused(stated: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused, match=what):
        warned(paid(stated), orders(2))


@pytest.mark.long
def test_too_little_history_is_no_failure_and_too_many_rows_are_published_once_somebody_says_so(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    file = tmp_path / "clicked.py"
    file.write_text(
        "from coset import Pipeline, expect\n"
        f"pipeline = Pipeline('clicked', source={f'{store.root}/topics'!r})\n"
        "clicks = pipeline.stream('clicks', key='k', partitions=2)\n"
        "clicks.select('id', name='each').write('counts', expect=[expect.rows_as_usual()])\n"
    )
    for batch in range(5):
        landed(store, batch)
        succeeded("run", str(file), *LOCAL)
    ledger = Ledger(store, "clicked")
    verdict = there(ledger.verdict(4))
    assert verdict.measured == (Measured("counts", "rows", 10),)
    assert "rows is 10: not judged, it needs 5 batches, and has 4" in observed(ledger, 4)
    page = (tmp_path / "docs" / "clicked" / "batch-4-attempt-0.html").read_text()
    assert "not judged, it needs 5 batches, and has 4" in page
    landed(store, 5)
    landed(store, 6)
    found = told(Kind.EXPECTATION, "run", str(file), *LOCAL)
    assert found.findings[0]["what"] == "counts gets 20 rows; the 5 batches before had 10, so that 9 to 11 is usual"
    assert "counts gets 20 rows" in found.follow()
    # The same attempt, judged again, and another one of the same plan, are judged alike.
    assert told(Kind.EXPECTATION, "run", str(file), *LOCAL).findings[0]["what"] == found.findings[0]["what"]
    assert ledger.attempt(5) == 2
    settings = tmp_path / "settings.toml"
    settings.write_text("\n".join(found.next.splitlines()[1:3]))
    succeeded("replan", str(file), "--why", "a good day", "--settings", str(settings))
    done = succeeded("run", str(file), *LOCAL)
    assert "; warning: counts gets 20 rows; the 5 batches before had 10" in done.stderr
    # Run again beside, its rows are compared with those that are published.
    done = succeeded("backfill", str(file), "--from", "6", "--scheme", "tasks(2)", *LOCAL)
    backfill = Ledger(store, "clicked.backfill-0")
    again = there(backfill.verdict(6))
    assert again.measured == (Measured("counts", "rows", 20),)
    assert "rows is 20: not judged, a backfill is compared with what was published" in observed(backfill, 6)


def observed(ledger: Ledger, batch: int) -> list[str]:
    results = json.loads(ledger.judgement(batch, 0) or b"{}")["results"]
    return [each["result"]["observed_value"] for each in results if each["expectation"] in READY_MADE]
