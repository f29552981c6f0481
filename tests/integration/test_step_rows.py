"""`coset show`: rows of any step, made of what has landed, without storing anything."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from coset import Pipeline, Refused
from coset.batches.step_rows import Sample, step_rows
from coset.sources.landing import land_rows
from partitioning.model.private import MASK
from partitioning.model.streams import DiscoveredPartition, InputFile
from tests.forked import coset
from tests.there import there

FILE = """
from coset import Pipeline

pipeline = Pipeline("spent", source={source!r})
orders = pipeline.stream("orders", key="customer", partitions=2, private=("name",))
customers = pipeline.table("customers", key="customer", partitions=1)
many = orders.filter("amount > 10", name="many")
parts = many.partial("sum(amount)::BIGINT AS spent", by="customer", name="parts")
totals = parts.combine("sum(spent)::BIGINT AS spent", running=True, name="totals")
joined = totals.to_stream().join(customers, "totals.spent, customers.country", name="by_country")
joined.to_stream().write("spent", mode="upsert")
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A pipeline's file, and 40 orders of 2 customers that have landed."""
    file = tmp_path / "spent.py"
    file.write_text(FILE.format(source=str(tmp_path / "topics")))
    for stream, rows in (("orders", _orders()), ("customers", [{"customer": "c0", "country": "NL"}])):
        land_rows(
            next(one for one in _pipeline(file).streams if one.name == stream), pa.Table.from_pylist(rows), stream
        )
    return file


def _orders() -> list[dict[str, object]]:
    return [{"customer": f"c{number % 2}", "amount": number, "name": f"n{number}"} for number in range(40)]


def _pipeline(file: Path) -> Pipeline:
    names: dict[str, Pipeline] = {}
    exec(file.read_text(), names)
    return names["pipeline"]


def test_any_step_and_stream_is_shown_from_a_sample_of_what_has_landed(written: Path) -> None:
    pipeline = _pipeline(written)
    everything = there(step_rows(pipeline, "by_country", Sample(), 20))
    assert everything.rows.to_pylist() == [{"customer": "c0", "spent": sum(range(12, 40, 2)), "country": "NL"}]
    assert (everything.of, everything.looked, everything.landed) == (1, 41, 41)
    newest = there(step_rows(pipeline, "many", Sample(3), 2))
    assert [row["amount"] for row in newest.rows.to_pylist()] == [34, 36]
    assert (newest.of, newest.looked, newest.landed) == (6, 6, 40)
    assert {row["name"] for row in newest.rows.to_pylist()} == {MASK}
    for step in ("orders", "customers", "parts", "totals", "spent.upsert"):
        assert step_rows(pipeline, step, Sample(percent=50), 5) is not None
    with pytest.raises(Refused, match="there is no stream or step 'more'"):
        step_rows(pipeline, "more", Sample(), 5)


def kept(folder: Path) -> list[Path]:
    """What lies there, but for what Python compiled."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_the_command_says_in_how_many_records_it_looked_and_stores_nothing(written: Path) -> None:
    there = kept(written.parent)
    done = coset("show", str(written), "--step", "many", "--sample", "50%", "--limit", "1", folder=written.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Step many: 20 rows, the first 1 by their columns")
    assert "Looked at 20 of 40 records that have landed, the newest 50% of each stream partition" in done.stdout
    said = json.loads(coset("show", str(written), "--json", folder=written.parent).stdout)
    assert (said["step"], said["of"], said["looked"], said["landed"]) == ("spent.upsert", 1, 41, 41)
    assert kept(written.parent) == there
    refused = coset("show", str(written), "--sample", "many", folder=written.parent)
    assert (refused.returncode, "'many' is no sample" in refused.stderr) == (3, True)


@pytest.mark.parametrize(("sample", "start"), [("4", 12), ("6", 0), ("50%", 12), ("100%", 0), ("5", 0)])
def test_a_file_with_gaps_is_looked_at_whole(sample: str, start: int) -> None:
    files = (InputFile("a", 1, "", 0, 10, missing=6), InputFile("b", 1, "", 12, 16))
    assert Sample.parse(sample).start(DiscoveredPartition(0, files)) == start
