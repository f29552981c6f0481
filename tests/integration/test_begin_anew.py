"""A step that is renamed, changed or changed before, as typed: nothing is emptied until it is asked for by name."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.documents.store import Store
from tests.landed import land_table
from tests.logs import log_of

CODE = """
from coset import Pipeline
pipeline = Pipeline("worth", source="{source}")
orders = pipeline.stream("orders", key="customer", partitions=4)
worth = orders.filter("{condition}").aggregate("sum(amount)::BIGINT AS worth")
worth.combine("sum(worth)::BIGINT AS worth", running=True, name="{name}").write("worth", mode="upsert")
"""


class Shop:
    """A pipeline in a file that is changed, and the orders that arrive for it."""

    def __init__(self, store: Store, folder_: Path) -> None:
        self._store = store
        self._file = folder_ / "worth.py"
        self._docs = folder_

    def order(self, *customers: str) -> None:
        table = pa.table({"customer": list(customers), "amount": [10] * len(customers)})
        land_table(table, "orders", f"{self._store.root}/topics", key="customer", partitions=4)

    def typed(self, *words: str, name: str = "totals", condition: str = "amount > 0") -> Result:
        self._file.write_text(CODE.format(source=f"{self._store.root}/topics", name=name, condition=condition))
        command, *more = words
        before = ("0",) if command == "diff" else ()
        where = ("--store", self._store.root)
        runs = ("--runner", "local", "--docs", str(self._docs)) if command in {"run", "backfill"} else ()
        return CliRunner().invoke(app, [command, str(self._file), *before, *more, *where, *runs])

    def worth(self) -> dict[str, int]:
        there = log_of(self._store, "worth").to_pyarrow_table()
        return dict(zip(there["customer"].to_pylist(), there["worth"].to_pylist(), strict=True))


@pytest.fixture
def shop(store: Store, tmp_path: Path) -> Shop:
    made = Shop(store, tmp_path)
    made.order(*(f"c{number}" for number in range(40)))
    assert made.typed("run").exit_code == 0
    made.order("c1")
    return made


def plain(result: Result) -> str:
    return re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("command", [("run",), ("plan",), ("explain",), ("diff", "next")])
def test_a_renamed_step_empties_no_table_until_it_is_asked_for_by_name(shop: Shop, command: tuple[str, ...]) -> None:
    refused = shop.typed(*command, name="sums")
    assert refused.exit_code == 3, refused.output
    disposition = "table 'worth' has 40 rows and would have only those of keys that come from now on"
    assert f"the step has no state yet and would begin with nothing; {disposition}" in plain(refused)
    assert "name it 'totals' again, as it does the same, or say in the pipeline that it is that one" in plain(refused)
    line = 'pipeline.changed("sums", was="totals"); or make what it would have kept by a backfill of all batches'
    assert line in plain(refused)
    assert re.search(r"worth\.py --begin-anew sums --store \S+`", plain(refused))
    assert len(shop.worth()) == 40


def test_what_is_asked_for_by_name_is_said_first_and_done(shop: Shop) -> None:
    shown = plain(shop.typed("explain", "--begin-anew", "sums", name="sums"))
    assert shown.index("State that does not simply go on") < shown.index("Streams")
    assert "begins with nothing" in shown
    shown = plain(shop.typed("diff", "next", "--begin-anew", "sums", name="sums"))
    assert shown.index("State that does not simply go on") < shown.index("Changes")
    assert len(shop.worth()) == 40


def test_a_comparison_with_the_next_plan_may_take_away_what_is_named(shop: Shop) -> None:
    assert shop.typed("diff", "next", "--take-away", "worth").exit_code == 0
    assert "'worthless' is no table or step of the pipeline" in plain(
        shop.typed("diff", "next", "--take-away", "worthless")
    )


@pytest.mark.long
def test_a_filter_that_is_corrected_is_seen_and_gone_on_with_by_name(shop: Shop) -> None:
    refused = plain(shop.typed("run", condition="amount >= 0"))
    assert "changed from filter amount > 0 to filter amount >= 0" in refused
    assert "worth.py --go-on totals --store " in refused
    ran = shop.typed("run", "--go-on", "totals", condition="amount >= 0")
    assert ran.exit_code == 0, ran.output
    assert shop.worth() == {f"c{number}": 20 if number == 1 else 10 for number in range(40)}


@pytest.mark.long
def test_all_batches_may_be_made_anew_with_what_was_changed_by_a_backfill(shop: Shop) -> None:
    assert shop.typed("run").exit_code == 0
    made = shop.typed("backfill", "--from", "0", "--cascade", condition="amount > 100")
    digest = re.search(r"sha256:[0-9a-f]{64}", made.output)
    assert digest, made.output
    swapped = shop.typed("swap", "0", "--approve", digest[0], condition="amount > 100")
    assert swapped.exit_code == 0, swapped.output
    shop.order("c2")
    ran = shop.typed("run", condition="amount > 100")
    assert ran.exit_code == 0, ran.output
    assert shop.worth() == {}
