"""A running step that is changed, as typed: nothing is emptied until that is asked for, or the step is rebuilt."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.documents.store import Store
from tests.begun import Begun
from tests.landed import land_table
from tests.logs import log_of

CODE = """
from coset import Pipeline
pipeline = Pipeline("worth", source="{source}")
orders = pipeline.stream("orders", key="customer", partitions=4)
worth = orders.filter("{condition}").aggregate("{of_orders}")
worth.combine("{running}", running=True, name="{name}").write("worth", mode="upsert")
"""
WORTH = "sum(amount)::BIGINT AS worth", "sum(worth)::BIGINT AS worth"
COUNTED = f"{WORTH[0]}, count(*) AS orders", f"{WORTH[1]}, sum(orders)::BIGINT AS orders"


BATCHES = range(80), range(40, 120)


class Shop:
    """A pipeline in a file that its owner edits, and commands as they are typed."""

    def __init__(self, store: Store, folder_: Path) -> None:
        self._store = store
        self._file = folder_ / "worth.py"
        self._docs = folder_ / "docs"
        self.edit(WORTH, "totals")

    def edit(self, columns: tuple[str, str], name: str, condition: str = "amount > 0") -> None:
        source, (of_orders, running) = f"{self._store.root}/topics", columns
        self._file.write_text(
            CODE.format(source=source, condition=condition, of_orders=of_orders, running=running, name=name)
        )

    def leave_out(self) -> None:
        """Write nothing but the orders, to another table."""
        whole = self._file.read_text()
        self._file.write_text(f'{whole[: whole.index("worth = ")]}orders.write("all_orders")\n')

    def order(self, customers: range) -> None:
        table = pa.table({"customer": [f"c{number}" for number in customers], "amount": [10] * len(customers)})
        land_table(table, "orders", f"{self._store.root}/topics", key="customer", partitions=4)

    def typed(self, command: str, *words: str) -> Result:
        runs = ("--runner", "local", "--docs", str(self._docs)) if command in {"run", "backfill"} else ()
        return CliRunner().invoke(app, [command, str(self._file), *words, *runs, "--store", self._store.root])

    def done(self, command: str, *words: str) -> str:
        result = self.typed(command, *words)
        assert result.exit_code == 0, result.output
        return plain(result)

    def rows(self) -> dict[str, tuple[int, ...]]:
        """What readers see of each customer."""
        delta = log_of(self._store, "worth")
        columns = [name for name in ("worth", "orders") if name in delta.to_pyarrow_table().schema.names]
        rows = delta.to_pyarrow_table(columns=["customer", *columns]).to_pylist()
        return {row["customer"]: tuple(row[name] for name in columns) for row in rows}


@pytest.fixture
def shop(begun: Begun, tmp_path: Path) -> Shop:
    """120 customers in two batches, 40 of them in both; an order more has arrived."""
    shop = Shop(begun.by(two_batches), tmp_path)
    shop.order(range(1))
    return shop


def two_batches(store: Store) -> None:
    with TemporaryDirectory() as folder:
        shop = Shop(store, Path(folder))
        for customers in BATCHES:
            shop.order(customers)
            shop.done("run")


def plain(result: Result) -> str:
    return re.sub(r"\s+", " ", result.output)


def expected(*batches: range, counted: bool) -> dict[str, tuple[int, ...]]:
    orders = [f"c{number}" for batch in batches for number in batch]
    return {who: (10 * orders.count(who), orders.count(who))[: 1 + counted] for who in orders}


def swap_that_is_named(shown: str) -> tuple[str, ...]:
    (command,) = set(re.findall(r"`coset swap \S+ ([^`]+)`", shown))
    return ("swap", *command.split())


@pytest.mark.parametrize(
    ("name", "why", "compared"),
    [
        ("totals", "its columns changed from", "what totals keeps"),
        ("sums", "the step has no state yet and would begin with nothing", "what sums keeps, before totals"),
    ],
)
def test_a_further_column_is_refused_rebuilt_and_gone_on_from(shop: Shop, name: str, why: str, compared: str) -> None:
    shop.edit(COUNTED, name)
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert why in plain(refused)
    assert "table 'worth' has 120 rows and would have only those of keys that come from now on" in plain(refused)
    (command,) = set(re.findall(r"`coset backfill \S+ (--from 0 --cascade [^`]+)`", plain(refused)))
    shown = shop.done("backfill", *command.split())
    assert f"different: 120 keys of what {name} keeps" in shown
    assert f"1 {compared} 120 120 120" in shown
    assert shop.rows() == expected(*BATCHES, counted=False)
    assert "It is in place: worth at version" in shop.done(*swap_that_is_named(shown))
    assert shop.rows() == expected(*BATCHES, counted=True)
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=True)


def test_a_step_whose_input_means_something_else_is_rebuilt_without_a_difference(shop: Shop) -> None:
    shop.edit(("sum(abs(amount))::BIGINT AS worth", WORTH[1]), "totals")
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert "--from 0 --cascade" in plain(refused)
    shown = shop.done("backfill", "--from", "0", "--cascade")
    assert "identical: 0 rows of 2 batches, and 120 that steps keep" in shown
    assert "at version 3" in shop.done(*swap_that_is_named(shown))
    assert "at version 4" in shop.done("undo", "0")
    assert shop.typed("run").exit_code == 3
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)
    assert "it changes the state of totals, on which later batches, up to 2, depend" in plain(shop.typed("undo", "0"))


@pytest.mark.long
def test_what_is_taken_back_is_gone_on_from_as_it_was(shop: Shop) -> None:
    shop.edit(COUNTED, "sums")
    shop.done(*swap_that_is_named(shop.done("backfill", "--from", "0", "--cascade")))
    shop.done("undo", "0")
    shop.edit(WORTH, "totals")
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_a_step_that_has_only_another_name_is_rebuilt_without_a_difference(shop: Shop) -> None:
    shop.edit(WORTH, "sums")
    shown = shop.done("backfill", "--from", "0", "--cascade")
    assert "Compared: identical: 0 rows of 2 batches, and 120 that steps keep." in shown
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_a_new_step_goes_nowhere_unless_all_later_batches_have_it(shop: Shop) -> None:
    shop.edit(COUNTED, "sums")
    for more, what in (
        ((), "it has no column orders yet: it would have rows of both queries"),
        (("--go-on", "worth"), "it changes the state of sums, on which later batches, up to 1, depend"),
    ):
        refused = shop.typed("backfill", "--from", "0", *more)
        assert refused.exit_code == 3
        assert what in plain(refused)
        assert "--from 0 --cascade --store " in plain(refused)


@pytest.mark.long
def test_a_table_that_was_left_out_of_a_batch_is_whole_again_when_it_comes_back(shop: Shop) -> None:
    shop.leave_out()
    shop.order(range(1, 30))
    shop.done("run", "--begin-anew", "all_orders")
    assert shop.rows() == expected(*BATCHES, counted=False)
    shop.edit(WORTH, "totals")
    shop.order(range(200, 203))
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert "table 'worth' has 120 rows" in plain(refused)
    (command,) = set(re.findall(r"`coset backfill \S+ (--from 0 --cascade [^`]+)`", plain(refused)))
    shop.done(*swap_that_is_named(shop.done("backfill", *command.split())))
    assert shop.rows() == expected(*BATCHES, range(30), counted=False)
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(30), range(200, 203), counted=False)


@pytest.mark.long
def test_a_backfill_from_a_later_batch_names_itself_with_what_it_needs_beside(shop: Shop) -> None:
    shop.edit(("sum(abs(amount))::BIGINT AS worth", WORTH[1]), "totals")
    refused = plain(shop.typed("backfill", "--from", "1", "--cascade"))
    (words,) = re.findall(r"`coset backfill \S+ ([^`]+ --go-on totals[^`]*)`", refused)
    assert words.startswith("--from 1 --cascade --go-on totals --")
    shown = shop.done("backfill", *words.split())
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


# ---- by name


@pytest.mark.parametrize("command", [("run",), ("plan",), ("explain",), ("diff", "1", "next")])
def test_a_renamed_step_empties_no_table_until_it_is_asked_for_by_name(shop: Shop, command: tuple[str, ...]) -> None:
    shop.edit(WORTH, "sums")
    refused = shop.typed(*command)
    assert refused.exit_code == 3, refused.output
    disposition = "table 'worth' has 120 rows and would have only those of keys that come from now on"
    assert f"the step has no state yet and would begin with nothing; {disposition}" in plain(refused)
    assert "name it 'totals' again, as it does the same, or say in the pipeline that it is that one" in plain(refused)
    line = 'pipeline.changed("sums", was="totals"); or make what it would have kept by a backfill of all batches'
    assert line in plain(refused)
    assert re.search(r"worth\.py --begin-anew sums --store \S+`", plain(refused))
    assert len(shop.rows()) == 120


def test_what_is_asked_for_by_name_is_said_first_and_done(shop: Shop) -> None:
    shop.edit(WORTH, "sums")
    shown = shop.done("explain", "--begin-anew", "sums")
    assert shown.index("State that does not simply go on") < shown.index("Streams")
    assert "begins with nothing" in shown
    shown = shop.done("diff", "1", "next", "--begin-anew", "sums")
    assert shown.index("State that does not simply go on") < shown.index("Changes")
    assert len(shop.rows()) == 120


def test_a_comparison_with_the_next_plan_may_take_away_what_is_named(shop: Shop) -> None:
    shop.done("diff", "1", "next", "--take-away", "worth")
    refused = shop.typed("diff", "1", "next", "--take-away", "worthless")
    assert "'worthless' is no table or step of the pipeline" in plain(refused)


@pytest.mark.long
def test_a_filter_that_is_corrected_is_seen_and_gone_on_with_by_name(shop: Shop) -> None:
    shop.edit(WORTH, "totals", "amount >= 0")
    refused = plain(shop.typed("run"))
    assert "changed from filter amount > 0 to filter amount >= 0" in refused
    assert "worth.py --go-on totals --store " in refused
    shop.done("run", "--go-on", "totals")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_all_batches_may_be_made_anew_with_what_was_changed_by_a_backfill(shop: Shop) -> None:
    shop.done("run")
    shop.edit(WORTH, "totals", "amount > 100")
    shop.done(*swap_that_is_named(shop.done("backfill", "--from", "0", "--cascade")))
    shop.order(range(2, 3))
    shop.done("run")
    assert shop.rows() == {}
