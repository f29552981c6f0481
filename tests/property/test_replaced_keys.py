"""The digest of replaced keys tells other keys apart, though each of their columns has the same values."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.model.composite_key import composite
from partitioning.model.graph import Write
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column
from partitioning.model.table_mode import Mode
from spark_jobs.tables.table_schema import keyed
from tests.examples import examples

WRITE = PlannedWrite(
    Write("visits", "newest", composite(("place", "day")), lineage=False, expectations=(), mode=Mode.UPSERT),
    (Column("place", "VARCHAR"), Column("day", "BIGINT")),
)
Key = tuple[str | None, int | None]
keys = st.lists(st.tuples(st.none() | st.sampled_from(["", "a", "b"]), st.none() | st.integers(0, 2)), max_size=4)


def digest(rows: list[Key]) -> tuple[int, str]:
    columns = {"place": [place for place, _ in rows], "day": [day for _, day in rows]}
    schema = pa.schema([("place", pa.string()), ("day", pa.int64())])
    found = keyed(WRITE, pa.table(columns, schema).to_batches(max_chunksize=2))
    return found.rows, found.digest


@settings(max_examples=examples(300))
@given(keys, keys, st.randoms(use_true_random=False))
def test_the_same_keys_in_any_order_and_no_others_have_a_digest(
    one: list[Key], other: list[Key], chance: Random
) -> None:
    assert (digest(one) == digest(other)) is (Counter(one) == Counter(other))
    mixed = chance.sample(one, len(one))
    assert digest(mixed) == digest(one)
    places, days = [place for place, _ in one], [day for _, day in one]
    paired = list(zip(chance.sample(places, len(one)), days, strict=True))
    assert (digest(paired) == digest(one)) is (Counter(paired) == Counter(one))
