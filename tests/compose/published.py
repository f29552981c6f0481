"""Runs in the image, beside Airflow: what is published, where its groups ran, and whether a document has the secret.

python -m tests.compose.published
"""

from __future__ import annotations

import gzip
import json
import os

from coset.batches.attempt import Attempt
from dags.pipelines.tail_activity import pipeline
from demo.comparison import compare
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at


def main() -> None:
    store = store_at(os.environ["COSET_STORE"])
    ledger = Ledger(store, pipeline.name)
    newest = ledger.standing().published
    published = []
    for number in range(newest.batch + 1 if newest else 0):
        plan = ledger.plan(number)
        assert plan is not None
        attempt = Attempt.published(ledger, plan)
        ran = sorted(receipt.location for receipt in attempt.receipts.values()) if attempt else []
        published.append({"groups": len(plan.groups), "ran at": ran})
    results = compare(ledger, pipeline.name)
    told = {
        "published": published,
        "aircraft": results.aircraft,
        "different": results.different,
        "equal": results.equal,
        "documents": _documents(store),
        "with the secret": _with_secret(store),
    }
    print(json.dumps(told))


def _documents(store: Store) -> int:
    return sum(1 for entry in store.list("") if not entry.key.endswith(".parquet"))


def _with_secret(store: Store) -> list[str]:
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    return [entry.key for entry in store.list("") if secret in _content(store, entry.key)]


def _content(store: Store, key: str) -> bytes:
    data = store.get(key) or b""
    return gzip.decompress(data) if key.endswith(".gz") else data


if __name__ == "__main__":
    main()
