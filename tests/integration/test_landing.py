"""The demo's input: every record of the package lands once, where Kafka's producer would have put it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.sources.files import Files
from demo.landing import STREAMS, land, raw
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import placement_hash


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[Mapping[str, int]]]:
    """A store with all three parts, and what landing each part said."""
    source = str(tmp_path_factory.mktemp("landing") / "topics")
    return store_at(source), [land(part, source) for part in range(3)]


@pytest.fixture(scope="module")
def partitions(landed: tuple[Store, list[Mapping[str, int]]]) -> dict[tuple[str, int], pa.Table]:
    """What lies in each stream partition, file after file."""
    store, _ = landed
    tables: dict[tuple[str, int], list[pa.Table]] = {}
    for stream in STREAMS:
        for entry in store.list(f"{stream}/partition="):
            partition = int(entry.key.split("partition=")[1].split("/")[0])
            tables.setdefault((stream, partition), []).append(pq.read_table(Files().open(f"{store.root}/{entry.key}")))
    return {key: pa.concat_tables(found) for key, found in tables.items()}


def test_all_flights_planes_and_weather_of_the_package_land_in_three_parts(landed) -> None:
    counts = landed[1]
    assert sum(count["flights"] for count in counts) == 336_776
    assert all(count["flights"] > 100_000 for count in counts)
    assert [count["planes"] for count in counts] == [3_322, 0, 0]
    assert [count["weather"] for count in counts] == [26_115, 0, 0]


def test_flights_without_a_tailnum_are_spread_over_all_partitions(partitions) -> None:
    nulls = [partitions["flights", partition]["tailnum"].null_count for partition in range(12)]
    assert sum(nulls) == 2_512
    assert max(nulls) - min(nulls) <= 1


def test_every_record_lies_in_the_partition_that_murmur2_gives_its_key(partitions) -> None:
    for (stream, partition), table in partitions.items():
        key, count = STREAMS[stream]
        places = {placement_hash(each) % count for each in table[key].unique().to_pylist() if each is not None}
        assert places <= {partition}, f"{stream}-{partition}"


def test_offsets_of_every_partition_count_up_from_zero(partitions) -> None:
    for table in partitions.values():
        assert table["_offset"].to_pylist() == list(range(table.num_rows))


def test_what_landed_is_what_the_package_holds(partitions) -> None:
    with raw() as connection:
        for stream in STREAMS:
            parts = [table.drop_columns("_offset") for (name, _), table in partitions.items() if name == stream]
            connection.register("landed", pa.concat_tables(parts))
            for one, other in (("landed", stream), (stream, "landed")):
                missing = f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})"
                assert connection.execute(missing).fetchall() == [(0,)]


def test_landing_a_part_again_changes_nothing(landed) -> None:
    store, _ = landed
    before = Counter(store.list(""))
    assert all(not any(land(part, store.root).values()) for part in range(3))
    assert Counter(store.list("")) == before


def test_a_part_is_refused_before_the_one_that_it_follows(store: Store) -> None:
    with pytest.raises(Refused, match="land part 0 first"):
        land(1, store.root)
    assert list(store.list("")) == []


def test_a_part_that_does_not_exist_is_refused(store: Store) -> None:
    with pytest.raises(Refused, match="there is no part 3"):
        land(3, store.root)
