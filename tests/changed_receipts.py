"""Receipts that say something else than what was done."""

from __future__ import annotations

from collections.abc import Callable

from coset.batches.ref import BatchRef
from partitioning.documents.document import encode
from partitioning.model.receipt import PartitionReceipt
from partitioning.values import replace


def change_receipt(ref: BatchRef, change: Callable[[PartitionReceipt], PartitionReceipt]) -> None:
    """Change what the first task says of the first partition that it read."""
    ledger, plan = ref.load()
    receipt = ledger.receipt(plan.batch, 0, 0)
    assert receipt is not None
    first, *tasks = receipt.tasks
    one, *others = first.partitions
    changed = replace(receipt, tasks=(replace(first, partitions=(change(one), *others)), *tasks))
    ledger.store.put(ledger.key("receipts", plan.batch, "attempt-0", "group-0"), encode(changed))
