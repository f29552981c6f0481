"""Orders as JSON lines, some of which cannot be used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash

PARTITIONS = 4


def orders(store: Store, **more: Any) -> Flow:
    """The flow of orders, as JSON lines."""
    pipeline = Pipeline("spent", source=f"{store.root}/topics")
    columns = {"customer": "VARCHAR", "amount": "DOUBLE"}
    rule = {"format": "json", "columns": columns, "bad_records": "set aside"} | more
    return pipeline.stream("orders", key="customer", partitions=PARTITIONS, **rule)


def totals(store: Store, **more: Any) -> Pipeline:
    """What each customer has spent."""
    flow = orders(store, **more)
    flow.aggregate("count(*) AS orders, sum(amount) AS spent", name="totals").write("spent")
    pipeline: Pipeline = flow.pipeline
    return pipeline


def line(customer: str, amount: object, offset: int) -> bytes:
    return json.dumps({"customer": customer, "amount": amount, "_offset": offset}).encode()


def land(store: Store, partition: int, first: int, lines: Sequence[bytes], stream: str = "orders") -> None:
    """Land a file of lines, of which the first has the offset `first`."""
    key = f"topics/{stream}/partition={partition}/{stream}+{partition}+{first:010}.json"
    store.put(key, b"\n".join(lines) + b"\n")


def home(customer: str) -> int:
    return placement_hash(customer) % PARTITIONS
