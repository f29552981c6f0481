"""The audit: turns the receipts of a batch into small tables, which Great Expectations judges.

`coverage` has a row for each partition of each input of a stage, `keys` the sampled keys and the tasks that took them,
`violations` the first records that broke a rule, `produced` the output of tasks. All are stored beside the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from coset.batches.auditing.audit_tables import TABLES, Audit, put
from coset.batches.auditing.coverage_rows import coverage
from coset.batches.auditing.judged_keys import judged_keys
from coset.batches.auditing.produced import closed, migrated, produced
from coset.batches.auditing.second_look import second_look
from coset.batches.auditing.violation_rows import violations
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import receipts
from partitioning.model.leaving import leavings
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt


def audit(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Audit the stored receipts of an attempt. Raises Refused as `receipts` and `audit_of`."""
    return audit_of(ledger, plan, attempt, receipts(ledger, plan, attempt))


def audit_of(ledger: Ledger, plan: Plan, attempt: int, read: Sequence[Receipt]) -> Audit:
    """Build the audit tables from the receipts of all task groups, and store them.

    Raises Refused as `coverage` and `judged_keys`.
    """
    tasks = {receipt.task: receipt for group in read for receipt in group.tasks}.values()
    rows = {
        "coverage": coverage(ledger, plan, tasks),
        "violations": violations(plan, tasks),
        "moved": _moved(plan, tasks),
        "gaps": second_look(plan, tasks),
        "produced": produced(plan, tasks),
        "migrated": migrated(plan, tasks),
        "closed": closed(plan, tasks),
    }
    made = {name: pa.Table.from_pylist(list(each), TABLES[name]) for name, each in rows.items()}
    tables = {name: judged_keys(ledger, plan, read) if name == "keys" else made[name] for name in TABLES}
    put(ledger, plan, attempt, tables)
    return Audit(**{name: table.to_pandas(use_threads=False) for name, table in tables.items()})


def _moved(plan: Plan, tasks: Iterable[TaskReceipt]) -> Iterator[dict[str, object]]:
    files = [artefact for task in tasks for artefact in task.artefacts if artefact.parts]
    spared = {exchange.name: exchange.spares for exchange in plan.exchanges}
    for stage in plan.stages:
        for leaving in leavings(plan, TaskRef(stage.name, 0)):
            left = [file for file in files if (file.role, file.name) == (leaving.role, leaving.name)]
            yield {
                "kind": leaving.role.value,
                "name": leaving.name,
                "step": leaving.step,
                "stage": stage.name,
                "partitions": leaving.placement.partitions,
                "records": sum(file.records for file in left),
                "bytes": sum(part.end - part.start for file in left for part in file.parts),
                "spared": spared.get(leaving.name),
            }
