"""Two topics that are joined by customer, with one fault: their records, where they lie, and the rows of their join."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.model.placement import CRC32, MURMUR2, HashName
from spark_jobs.engine.hashing import placement_hashes

PARTITIONS = 6
BEFORE = 4
# The topics, each with the column that says which record it is.
TOPICS = {"orders": "order_id", "payments": "payment_id"}
KEY = "customer"

_SEED, _CUSTOMERS, _RECORDS = 1111, 2_400, 4_000
_FILES = 3
_LOST = 30

# A row of the join is a customer, an order and a payment; how many times it is there.
Rows = Counter[tuple[str, int, int]]


class Fault(StrEnum):
    """What is wrong with the topics."""

    NONE = "nothing is wrong"
    HASH = "one producer hashes otherwise"
    COUNT = "one topic's partition count was changed"
    LANDED = "records are lost, as many others doubled"


@dataclass(frozen=True, slots=True)
class Topics:
    """The records of each topic, with their `_partition` and `_offset`, and the rows of the true join."""

    fault: Fault
    records: Mapping[str, pa.Table]
    joined: Rows

    @classmethod
    def of(cls, fault: Fault) -> Topics:
        """Topics with this fault. The records follow from a fixed seed, and are the same for each fault."""
        random = np.random.default_rng(_SEED)
        customers = np.array([f"customer-{number:05}" for number in range(_CUSTOMERS)])
        made = {name: customers[random.integers(0, _CUSTOMERS, _RECORDS)].tolist() for name in TOPICS}
        joined = _join(made["orders"], made["payments"])
        records = {
            name: _placed(made[name], TOPICS[name], fault if name == "payments" else Fault.NONE) for name in TOPICS
        }
        return cls(fault, records, joined)

    def land(self, folder: Path) -> None:
        """Write them below a folder as Kafka Connect's sink would, some files for each partition."""
        for topic, records in self.records.items():
            for partition in range(PARTITIONS):
                mine = records.filter(pa.array(records["_partition"].to_numpy() == partition))
                for rows in np.array_split(np.arange(mine.num_rows), _FILES):
                    file = mine.take(pa.array(rows))
                    first = file["_offset"][0].as_py()
                    path = folder / topic / f"partition={partition}" / f"{topic}+{partition}+{first:010}.parquet"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    pq.write_table(file.drop_columns("_partition"), path)


def _join(orders: list[str], payments: list[str]) -> Rows:
    """The true join: of what was produced, wherever it lies."""
    paid = defaultdict(list)
    for number, customer in enumerate(payments):
        paid[customer].append(number)
    return Counter((customer, order, each) for order, customer in enumerate(orders) for each in paid[customer])


def _placed(keys: list[str], number: str, fault: Fault) -> pa.Table:
    """The records of a topic in the order in which they were produced, with this fault."""
    places = _hashes(keys, CRC32 if fault is Fault.HASH else MURMUR2) % PARTITIONS
    if fault is Fault.COUNT:
        # The first half was produced before the topic was grown.
        half = len(keys) // 2
        places[:half] = _hashes(keys[:half], MURMUR2) % BEFORE
    offsets = np.zeros(len(keys), np.int64)
    for partition in range(PARTITIONS):
        offsets[places == partition] = np.arange(np.count_nonzero(places == partition))
    columns = {KEY: keys, number: np.arange(len(keys)), "_partition": places.astype(np.int64), "_offset": offsets}
    table = pa.table(columns)
    return _spoilt(table) if fault is Fault.LANDED else table


def _spoilt(records: pa.Table) -> pa.Table:
    """As a sink leaves them that forgot its place: some records lack, and as many beside them are there twice."""
    random = np.random.default_rng(_SEED)
    counts = np.ones(records.num_rows, np.int64)
    chosen = random.choice(records.num_rows, 2 * _LOST, replace=False)
    counts[chosen[:_LOST]], counts[chosen[_LOST:]] = 0, 2
    return records.take(pa.array(np.repeat(np.arange(records.num_rows), counts)))


def _hashes(keys: list[str], named: HashName) -> np.ndarray:
    return placement_hashes(pa.array(keys), "string", named)
