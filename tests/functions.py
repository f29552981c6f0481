"""Functions of a user's own, as pipelines of tests name them."""

from __future__ import annotations

import os
import signal
import sys
import time
from asyncio import CancelledError
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc


def doubled(table: pa.Table) -> pa.Table:
    """A column more, no row less."""
    return table.append_column("twice", pc.multiply(table["v"], 2))


def odd_doubles(table: pa.Table) -> pa.Table:
    """NaN for each third `v`, else -1."""
    values = [-1.0 if v % 3 else float("nan") for v in table["v"].to_pylist()]
    return table.append_column("d", pa.array(values, pa.float64()))


def spread(table: pa.Table) -> pa.Table:
    """Another key, and two rows for each that has one."""
    pages = table["page"]
    made = pa.table({"page": pages, "v": table["v"], "side": ["here"] * len(table)})
    there = made.set_column(2, "side", pa.array(["there"] * len(table)))
    return pa.concat_tables([made, there]).filter(pc.is_valid(pa.chunked_array([*pages.chunks, *pages.chunks])))


def ranked(table: pa.Table) -> pa.Table:
    """Something that needs all records at once."""
    order = pc.rank(table["v"], sort_keys="descending")
    return pa.table({"v": table["v"], "place": order})


def numbered(table: pa.Table) -> pa.Table:
    """Where each record was, and how many the function was given."""
    given = pa.array([len(table)] * len(table), pa.int64())
    return table.append_column("given", given)


def held(table: pa.Table) -> pa.Table:
    """The rows as they are, once the file is gone that they name; another tells that they are held."""
    gate = Path(table["gate"][0].as_py())
    while gate.exists():
        gate.with_suffix(".met").touch()
        time.sleep(0.1)
    return table.select(["k", "v"])


def refusing(table: pa.Table) -> pa.Table:
    """Fails on one record."""
    if pc.any(pc.equal(table["v"], 213)).as_py():
        raise ValueError("213 is not allowed")
    return table


def illegible(table: pa.Table) -> pa.Table:
    """Fails on one record with a text that UTF-8 does not have."""
    if pc.any(pc.equal(table["v"], 213)).as_py():
        raise ValueError("name \udcff")
    return table


def leaving(table: pa.Table) -> pa.Table:
    """Ends as a script does, on one record."""
    if pc.any(pc.equal(table["v"], 213)).as_py():
        sys.exit(0)
    return table


def cancelled(table: pa.Table) -> pa.Table:
    """Ends as a coroutine does, on one record."""
    if pc.any(pc.equal(table["v"], 213)).as_py():
        raise CancelledError
    return table


def emptying(table: pa.Table) -> pa.Table:
    """Takes away what others need."""
    os.environ.clear()
    return table


def exiting_on_records(table: pa.Table) -> pa.Table:
    """Ends its process, unless there is nothing to do."""
    if len(table):
        os._exit(7)
    return table


def exiting(table: pa.Table) -> pa.Table:
    """Ends its process so that nobody can see why."""
    os._exit(7)


def killed(table: pa.Table) -> pa.Table:
    """Ends as the kernel ends whoever takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return table


def nothing(table: pa.Table) -> None:
    """Forgets to give anything."""


def without_key(table: pa.Table) -> pa.Table:
    """Forgets a column."""
    return table.drop_columns(["k"])


def in_words(table: pa.Table) -> pa.Table:
    """Gives text where a number was declared."""
    return table.set_column(table.column_names.index("v"), "v", pa.array(["many"] * len(table)))


def lower_keys(table: pa.Table) -> pa.Table:
    """Changes keys that it was declared to leave alone."""
    return table.set_column(table.column_names.index("k"), "k", pc.replace_substring(table["k"], "key-1", "KEY-1"))


def streak(table: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """How many records each key has had in all; every fifth minute that is forgotten."""
    minutes = pc.divide(pc.cast(table["seen"], pa.int64()), 60_000_000)
    given = pa.table({"k": table["k"], "n": pa.array([1] * len(table), pa.int64()), "last": minutes})
    both = pa.concat_tables([given, state.select(["k", "n", "last"])])
    made = both.group_by("k").aggregate([("n", "sum"), ("last", "max")])
    made = pa.table({"k": made["k"], "n": made["n_sum"], "last": made["last_max"]})
    goes_on = pc.not_equal(pc.subtract(made["last"], pc.multiply(pc.divide(made["last"], 5), 5)), 0)
    return made.select(["k", "n"]), made.filter(goes_on)


def counted(table: pa.Table) -> pa.Table:
    """A row for each key; it needs all records at once."""
    made = table.group_by("k").aggregate([("v", "sum"), ([], "count_all")])
    return pa.table({"k": made["k"], "n": made["count_all"], "v": made["v_sum"]})


def tripled(table: pa.Table) -> pa.Table:
    """A column more, no row less."""
    return table.append_column("thrice", pc.multiply(table["v"], 3))


def joined(table: pa.Table) -> pa.Table:
    """What the rows of two sides have of each key; it needs all records at once."""
    views, clicks = (table.filter(pc.equal(table["side"], side)) for side in ("views", "clicks"))
    both = views.select(["k", "v"]).join(clicks.select(["k", "v"]).rename_columns(["k", "c"]), "k", join_type="inner")
    return both.append_column("sum", pc.add(both["v"], both["c"]))


def of_the_task(rows: pa.Table) -> pa.Table:
    """How many records a task has, for each of them: what no function should tell."""
    return rows.select(["customer"]).append_column("n", pa.array([rows.num_rows] * rows.num_rows, pa.int64()))


def adding_one(given: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What each customer spent, and one more for each batch: what depends on how records were cut into batches."""
    spent = {row["customer"]: row["spent"] for row in kept.to_pylist()}
    for customer in dict.fromkeys(given["customer"].to_pylist()):
        spent[customer] = spent.get(customer, 0) + 1
    for row in given.to_pylist():
        spent[row["customer"]] += row["spent"]
    made = pa.Table.from_pylist([{"customer": name, "spent": each} for name, each in spent.items()], kept.schema)
    return made, made


def tallied(given: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
    """How many records a key had, and the latest of them."""
    known = {row["k"]: row for row in kept.to_pylist()}
    for row in given.to_pylist():
        was = known.get(row["k"], {"k": row["k"], "n": 0, "last": -1})
        known[row["k"]] = was | {"n": was["n"] + 1, "last": max(was["last"], row["id"])}
    made = pa.Table.from_pylist(list(known.values()), pa.schema({"k": "string", "n": "int64", "last": "int64"}))
    return made.select(["k", "n"]), made


def tallied_twice(given: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same, and twice that number."""
    rows, made = tallied(given, kept.select(["k", "n", "last"]))
    return rows, with_twice(made)


def with_twice(kept: pa.Table) -> pa.Table:
    """What `tallied` kept as `tallied_twice` keeps it."""
    return kept.append_column("twice", pa.array([2 * n for n in kept["n"].to_pylist()], pa.int64()))


def with_twice_without_one(kept: pa.Table) -> pa.Table:
    """The same without a row."""
    return with_twice(kept).slice(1)


def with_twice_under_another_key(kept: pa.Table) -> pa.Table:
    """The same, and a row has another's key."""
    made = with_twice(kept)
    return made.set_column(0, "k", pa.array([*made["k"].to_pylist()[1:], "another"]))


def as_numbers(table: pa.Table) -> pa.Table:
    """Amounts as numbers. It raises ValueError for one that is none."""
    amounts = [float(amount) for amount in table["amount"].to_pylist()]
    return pa.table({"customer": table["customer"], "amount": pa.array(amounts, pa.float64())})


def in_latin_1(table: pa.Table) -> pa.Table:
    """Text that its writer did not make UTF-8."""
    return table.append_column("x", pa.array([b"\xe9"] * len(table), pa.binary()).view(pa.string()))
