"""How to refer to a batch: nothing else goes between the steps of one."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, open_plan
from partitioning.documents.store import Store
from partitioning.model.plan import Plan


@dataclass(frozen=True, slots=True)
class BatchRef:
    """A batch, by the address of its plan and the digest that the plan must have."""

    plan_uri: str
    digest: str

    @classmethod
    def of(cls, store: Store, plan: Plan) -> BatchRef:
        """How to refer to a stored plan."""
        ledger = Ledger(store, plan.pipeline)
        return cls(ledger.uri(ledger.key("plans", plan.batch)), digest(plan))

    def load(self) -> tuple[Ledger, Plan]:
        """The plan and the ledger it lies in. Raises Refused if it is not there or is another than was meant."""
        return open_plan(self.plan_uri, self.digest)
