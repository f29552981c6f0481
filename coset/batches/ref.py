"""A reference to a batch, which is all that its steps pass to each other."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, open_plan
from partitioning.documents.store import Store
from partitioning.model.plan import Plan


@dataclass(frozen=True, slots=True)
class BatchRef:
    """A batch, by the URI of its plan and the digest that the plan must have."""

    plan_uri: str
    digest: str

    @classmethod
    def of(cls, store: Store, plan: Plan) -> BatchRef:
        """The reference to a stored plan."""
        ledger = Ledger(store, plan.pipeline)
        return cls(ledger.uri(ledger.key("plans", plan.batch)), digest(plan))

    def load(self) -> tuple[Ledger, Plan]:
        """The ledger and the plan. Raises Refused if the plan is missing or has another digest."""
        return open_plan(self.plan_uri, self.digest)

    def in_hand(self) -> LoadedBatch:
        """The same for several steps in one process, which load it once. Raises as `load`."""
        return LoadedBatch(self.plan_uri, self.digest, *self.load())


@dataclass(frozen=True, slots=True)
class LoadedBatch(BatchRef):
    """A batch whose ledger and plan are loaded. What its ledger has read stays read."""

    ledger: Ledger
    plan: Plan

    @classmethod
    def of(cls, store: Store, plan: Plan) -> LoadedBatch:
        """A stored plan, with what the store has read until now."""
        bare = BatchRef.of(store, plan)
        return cls(bare.plan_uri, bare.digest, Ledger(store, plan.pipeline), plan)

    def load(self) -> tuple[Ledger, Plan]:
        return self.ledger, self.plan

    def in_hand(self) -> LoadedBatch:
        return self
