"""A reference to a batch, which is all that its steps pass to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, open_plan
from partitioning.documents.store import Store
from partitioning.model.backfill import Swap
from partitioning.model.plan import Plan

if TYPE_CHECKING:  # they import pandas and Delta's library
    from coset.batches.auditing.audit_tables import Audit
    from coset.batches.tables.logs import Logs


@dataclass(slots=True)
class HandedOver:
    """What a step of a batch hands over to those that follow it in the same process.

    The `audited` attempt is open and all its receipts fit the plan; the `audit` is of it. The files of the `checked`
    attempt are in the store as its receipts say; tables were as in the `logs`. All swaps that are `decided` are carried
    out.
    """

    audited: int | None = None
    audit: Audit | None = None
    checked: int | None = None
    logs: Logs | None = None
    decided: Sequence[Swap] | None = None


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

    @property
    def handed(self) -> HandedOver:
        """What the step before has handed over: nothing, as it may have been another process, long ago."""
        return HandedOver()


@dataclass(frozen=True, slots=True)
class LoadedBatch(BatchRef):
    """A batch whose ledger and plan are loaded. What its ledger has read stays read, and its steps go on from each
    other."""

    ledger: Ledger
    plan: Plan
    handed: HandedOver = field(default_factory=HandedOver, compare=False)

    @classmethod
    def of(cls, store: Store, plan: Plan) -> LoadedBatch:
        """A stored plan, with what the store has read until now."""
        bare = BatchRef.of(store, plan)
        return cls(bare.plan_uri, bare.digest, Ledger(store, plan.pipeline), plan)

    def load(self) -> tuple[Ledger, Plan]:
        return self.ledger, self.plan

    def in_hand(self) -> LoadedBatch:
        return self
