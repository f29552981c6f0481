"""What real batches leave for reports: when each part was done, how far behind it was, what was published and when."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.reports.overview import rows_of
from coset.reports.site import Row, listed
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused, Unjudged
from partitioning.model.journal import Part
from tests.landed import land_table
from tests.running import next_batch, run_and_publish

TABLE = pa.table({"tailnum": [f"N{number}" for number in range(40)], "delay": list(range(40))})


def pipeline(store: Store, *expect: dict[str, Any]) -> Pipeline:
    made = Pipeline("delays", source=f"{store.root}/topics")
    flights = made.stream("flights", key="tailnum", partitions=4)
    flights.aggregate("count(*) AS flights, max(delay) AS delay", name="tails").write("delays", expect=expect)
    return made


def land(store: Store) -> None:
    land_table(TABLE, "flights", f"{store.root}/topics", key="tailnum", partitions=4)


def planned(store: Store, made: Pipeline) -> BatchRef:
    return next_batch(made, store.root)


def newest(store: Store) -> Row:
    return listed(store, "delays", "index")[0]


def test_each_part_of_a_batch_is_in_its_journal_and_on_its_page(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    run_and_publish(ref, tmp_path)
    ledger = Ledger(store, "delays")
    made = ledger.journal_entry(0, Part.PLAN)
    assert made is not None
    assert made.plan == ref.digest
    assert made.lag is not None
    assert (made.lag.records, made.lag.most_in.startswith("flights-")) == (40, True)
    parts = [
        ledger.journal_entry(0, part, attempt)
        for part, attempt in ((Part.AUDIT, 0), (Part.CHECK, 0), (Part.PUBLISH, None))
    ]
    ended = [made.at.ended, *(part.at.ended for part in parts if part)]
    assert len(ended) == len(Part)
    assert ended == sorted(ended)

    row = newest(store)
    assert row["versions"] == {"delays": 1}
    assert row["lag_records"] == 40
    assert row["tables"] == {"delays": {"rows": 40, "row_bytes": row["row_bytes"]}}
    assert {f"{part}_seconds" for part in Part} <= set(row)
    page = (tmp_path / "delays" / "batch-0-attempt-0.html").read_text()
    assert re.search(r"Published 20[0-9-]+ [0-9:]+ UTC: delays at version 1\.", page)
    assert "40 records were in no published batch; furthest behind was flights-" in page
    assert page == (store.get("delays/docs/batch-0-attempt-0.html") or b"").decode()
    assert rows_of(store, ["delays"])[0]["open"] is None


def test_whoever_comes_later_does_not_change_when_a_part_was_done(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    run_and_publish(ref, tmp_path)
    ledger, row = Ledger(store, "delays"), newest(store)
    before = ledger.journal_entry(0, Part.PUBLISH)
    assert steps.publish(ref, tmp_path) == "Batch 0 is published: delays at version 1"
    assert ledger.journal_entry(0, Part.PUBLISH) == before
    assert newest(store) == row


def test_a_journal_that_is_gone_changes_no_more_than_the_pages(store: Store, tmp_path: Path) -> None:
    land(store)
    ref = planned(store, pipeline(store))
    for entry in list(store.list("delays/journal/")):
        store.delete(entry.key)
    run_and_publish(ref, tmp_path)
    assert "lag_records" not in newest(store)
    assert newest(store)["versions"] == {"delays": 1}


def test_the_overview_says_why_an_open_batch_waits_until_it_is_given_up(store: Store, tmp_path: Path) -> None:
    land(store)
    rule: dict[str, Any] = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "delay", "max_value": 38},
    }
    made = pipeline(store, rule)
    whys = []
    for _ in range(2):
        with pytest.raises(Refused):
            run_and_publish(planned(store, made), tmp_path)
        whys.append(rows_of(store, ["delays"])[0]["open"]["waits"])
    assert whys[0] == "attempt 0 failed; the next run makes another"
    assert whys[1].startswith("it waits for a decision")
    assert f"{whys[1]}." in (store.get("docs/index.html") or b"").decode()
    steps.abandon(made, store.root, "the input was wrong")
    (row,) = rows_of(store, ["delays"])
    assert (row["open"], row["newest"]["outcome"]) == (None, "given up")


def test_a_batch_that_could_not_be_judged_has_an_exit_code_of_its_own(store: Store, tmp_path: Path) -> None:
    land(store)
    lacking: dict[str, Any] = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "gone", "max_value": 3},
    }
    with pytest.raises(Unjudged) as unjudged:
        run_and_publish(planned(store, pipeline(store, lacking)), tmp_path)
    assert unjudged.value.exit_code == 7
    page = (tmp_path / "delays" / "batch-0-attempt-0.html").read_text()
    assert "? could not be judged." in page
