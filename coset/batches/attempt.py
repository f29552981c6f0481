"""An attempt of a batch: its plan, the receipts of its task groups, and the files that these name."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from partitioning.commands import Replan, Run, Status
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, about, refuse
from partitioning.kinds import Kind
from partitioning.model.figures import effort_of
from partitioning.model.journal import Effort
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Receipt, Role, TaskReceipt
from partitioning.model.root_names import TABLES


class Attempt:
    """One attempt. It reads the receipts once, when they are first needed. Each step of a batch loads one attempt."""

    def __init__(self, ledger: Ledger, plan: Plan, number: int) -> None:
        self.ledger, self.plan, self.number = ledger, plan, number

    @classmethod
    def of_open(cls, ledger: Ledger, plan: Plan) -> Attempt:
        """The current attempt of an open batch."""
        return cls(ledger, plan, ledger.attempt(plan.batch))

    @classmethod
    def published(cls, ledger: Ledger, plan: Plan) -> Attempt | None:
        """The published attempt of a batch. None if the batch is not published."""
        verdict = ledger.published(plan.batch)
        return None if verdict is None else cls(ledger, plan, verdict.attempt)

    @cached_property
    def receipts(self) -> dict[int, Receipt]:
        """The stored receipts, by task group."""
        return self.ledger.receipts(self.plan.batch, self.number, (group.group for group in self.plan.groups))

    @property
    def missing(self) -> list[int]:
        """The task groups without a receipt."""
        return [group.group for group in self.plan.groups if group.group not in self.receipts]

    @property
    def tasks(self) -> Iterator[TaskReceipt]:
        """The receipts of the tasks, for groups that have a receipt."""
        return (task for receipt in self.receipts.values() for task in receipt.tasks)

    @property
    def effort(self) -> Effort | None:
        """What its task groups took. None if a receipt is missing or is of an earlier version."""
        return effort_of(self.plan, tuple(self.receipts.values()))

    @cached_property
    def artefacts(self) -> tuple[Artefact, ...]:
        """The files that the receipts name.

        Raises Refused, with all findings, if a receipt is missing or does not fit the plan.
        """
        findings = [*self._unfit(), *self._misplaced()]
        refuse(findings)
        return tuple(sorted(file for receipt in self.receipts.values() for file in receipt.artefacts))

    @cached_property
    def _identity(self) -> str:
        return digest(self.plan)

    def _unfit(self) -> Iterator[Finding]:
        for number in (group.group for group in self.plan.groups):
            receipt = self.receipts.get(number)
            place = self.ledger.key("receipts", self.plan.batch, f"attempt-{self.number}", f"group-{number}")
            where, pipeline = self.ledger.uri(place), self.ledger.pipeline
            if receipt is None:
                what = f"group {number} has no receipt"
                yield Finding.of(Kind.BATCH_UNRUN, what, where, Run(pipeline), group=number)
            elif receipt.plan != self._identity:
                what = f"the receipt is of the plan {receipt.plan}, not of {self._identity}"
                values = about(plan=self._identity, found=receipt.plan)
                yield Finding(Kind.DOCUMENTS_DISAGREE, what, where, Status(pipeline), values)

    def _misplaced(self) -> Iterator[Finding]:
        """Findings on files outside the tables of the plan, and on files that two tasks claim."""
        known = set[str]()
        of_plan = (receipt for receipt in self.receipts.values() if receipt.plan == self._identity)
        for artefact in (file for receipt in of_plan for file in receipt.artefacts):
            where = self.ledger.uri(artefact.path)
            if artefact.role is Role.TABLE and not _is_of(artefact, self.plan.tables):
                what, then = f"the plan writes no table {artefact.name!r} there", Status(self.ledger.pipeline)
                yield Finding.of(Kind.TASK_FILES, what, where, then, artefact=artefact.name)
            if artefact.path in known:
                what, again = "two tasks say they wrote this file", Replan(self.plan.pipeline)
                yield Finding.of(Kind.TASK_FILES, what, where, again, file=artefact.path)
            known.add(artefact.path)


def _is_of(artefact: Artefact, tables: Collection[str]) -> bool:
    """Whether a file's table is one of these, and the file lies in that table's folder."""
    return artefact.name in tables and artefact.path.startswith(f"{TABLES}{artefact.name}/data/")
