"""The ledger: a pipeline's plans, receipts, verdicts and commits in the store, and what they add up to. A balance
adds a hundred of them up.

Batches are numbered without holes. A listing only hints at the newest, as it costs more the more there are, and may
lag behind; asking for the ones that come next decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import ClassVar, TypeVar

from msgspec import UNSET, UnsetType, field

from partitioning.commands import Status
from partitioning.documents.document import decode, digest, encode, pack, unpack
from partitioning.documents.store import NumberedLog, RememberingStore, Store, at_once, last_from, numbered
from partitioning.documents.stores import store_at
from partitioning.errors import Conflict, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, key_of, pipeline_of
from partitioning.model.failure import Failure
from partitioning.model.journal import JournalEntry, Part
from partitioning.model.offsets import OffsetRange, StreamPartition, check_name
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Commit, Decision, Verdict
from partitioning.model.verification import Verification, Verifications
from partitioning.values import Document, Value, replace


class LeftOut(Value, frozen=True):
    """Offsets that a published batch left out."""

    offsets: OffsetRange
    batch: int


class LedgerBalance(Document, frozen=True):
    """What all published batches with numbers less than `before` add up to, oldest first.

    `skipped` are offsets before those that a batch was asked to start at, `lost` those whose loss somebody accepted.
    `written` names the batch that wrote each result table last. `doubled` are streams of which several files had the
    same records. Backfills do not change it.
    """

    FORMAT: ClassVar[str] = "coset.balance/1"

    pipeline: str
    before: int = 0
    skipped: tuple[LeftOut, ...] = ()
    lost: tuple[LeftOut, ...] = ()
    written: dict[str, int] = field(default_factory=dict)
    doubled: tuple[str, ...] | UnsetType = UNSET

    def then(self, plan: Plan) -> LedgerBalance:
        """This, and the next published batch."""
        return replace(
            self,
            before=plan.batch + 1,
            skipped=(*self.skipped, *(LeftOut(offsets, plan.batch) for offsets in skipped_by(plan))),
            lost=(*self.lost, *(LeftOut(offsets, plan.batch) for offsets in plan.losses)),
            written=self.written | dict.fromkeys(plan.tables, plan.batch),
            doubled=tuple(sorted({*(self.doubled or ()), *doubled_by(plan)})) or UNSET,
        )


def skipped_by(plan: Plan) -> Iterator[OffsetRange]:
    """The offsets before those that a batch was asked to start at."""
    for stream in plan.streams:
        for partition in stream.partitions:
            start = plan.starts.get(f"{stream.name}-{partition.partition}")
            if start is not None and partition.beginning < start:
                yield OffsetRange(StreamPartition(stream.name, partition.partition), partition.beginning, start)


def doubled_by(plan: Plan) -> Iterator[str]:
    """The streams of which a batch found the same records in several files."""
    return (stream.name for stream in plan.streams if any(planned.doubles for planned in stream.partitions))


D = TypeVar("D", bound=Document)

# One request gives this many keys.
_LISTED = 1000
# This far behind what seems the newest plan there may be others, where plans were removed.
_BEYOND_A_HOLE = (2, 3, 5, 9, 17)


class Standing(Value, frozen=True):
    """Where a pipeline stands: its newest plan, that plan's verdict and commit, and what was published last.

    `published` is the newest plan whose verdict says publish; it may be `plan` itself.
    """

    plan: Plan | None = None
    verdict: Verdict | None = None
    commit: Commit | None = None
    published: Plan | None = None

    @property
    def open(self) -> bool:
        """Whether the newest batch still has to be run, or its publication finished."""
        if self.plan is None:
            return False
        return self.verdict is None or (self.verdict.decision is Decision.PUBLISH and self.commit is None)


def open_plan(uri: str, expected: str) -> tuple[Ledger, Plan]:
    """A plan by its URI, `<store root>/<pipeline>/plans/<N>.json.gz`, and the ledger it lies in, to work on that batch.

    Raises Refused if it is not there, or if its digest is not the `expected` one.
    """
    root, *key = uri.rsplit("/", 3)
    match = re.fullmatch(r"([^/]+)/plans/([0-9]+)\.json\.gz", "/".join(key))
    if match is None:
        what = f"{uri!r} is no plan's URI"
        raise Refused.of(Kind.BATCH_UNKNOWN, what, "plan", "use the one that planning gave", uri=uri)
    ledger = Ledger(RememberingStore(store_at(root)), match[1])
    plan = ledger.plan(int(match[2]))
    if plan is None:
        raise Refused.of(Kind.BATCH_UNKNOWN, "there is no such plan", uri, "use the URI that planning gave", uri=uri)
    if (stored := digest(plan)) != expected:
        what, then = f"the plan is {stored}, expected was {expected}", "plan again: it was replaced"
        raise Refused.of(Kind.DOCUMENTS_DISAGREE, what, uri, then, stored=stored, expected=expected)
    return ledger, plan


class Ledger:
    """Reads and writes one pipeline's documents in a store.

    A backfill's ledger has the pipeline's own plans and verdicts for the batches that the backfill does not run again.
    """

    def __init__(self, store: Store, pipeline: str) -> None:
        self.store = store
        self.pipeline = check_name(pipeline, "pipeline")
        again = pipeline_of(pipeline)
        self.original = Ledger(store, again) if again else None

    def key(self, noun: str, batch: int, *more: str) -> str:
        """Where a document lies, below the store's root; plans, which may be large, are compressed."""
        ending = ".json.gz" if noun == "plans" else ".json"
        return "/".join((self.pipeline, noun, *(str(part) for part in (batch, *more)))) + ending

    def uri(self, key: str) -> str:
        """A document's full address."""
        return self.store.uri(key)

    def plan(self, batch: int) -> Plan | None:
        key = self.key("plans", batch)
        data = self.store.get(key)
        own = None if data is None else _plan_in(data, self.uri(key))
        return self.original.plan(batch) if own is None and self.original else own

    def verdict(self, batch: int) -> Verdict | None:
        own = self._own_verdict(batch)
        if own is None and self.original and not self.has_plan(batch):
            return self.original.verdict(batch)
        return own

    def verdicts(self, batch: int) -> Iterator[Verdict]:
        """All verdicts on a batch: its own, and those of backfills."""
        own = self.verdict(batch)
        if own is not None:
            yield own
        pipeline = self.original.pipeline if self.original else self.pipeline
        for again in numbered(self.store, Backfill, partial(key_of, pipeline)):
            if batch in again.batches and (verdict := Ledger(self.store, again.name)._own_verdict(batch)) is not None:
                yield verdict

    def published(self, batch: int) -> Verdict | None:
        """The verdict on a batch, if it says publish."""
        verdict = self.verdict(batch)
        return verdict if _says_publish(verdict) else None

    def has_plan(self, batch: int) -> bool:
        """Whether a plan of that batch lies here, and not only in the ledger of what is run again."""
        return self.store.head(self.key("plans", batch)) is not None

    def commit(self, batch: int) -> Commit | None:
        return self._get(Commit, self.key("commits", batch))

    def receipt(self, batch: int, attempt: int, group: int) -> Receipt | None:
        return self._get(Receipt, self.key("receipts", batch, f"attempt-{attempt}", f"group-{group}"))

    def receipts(self, batch: int, attempt: int, groups: Iterable[int]) -> dict[int, Receipt]:
        """The stored receipts of these task groups, fetched together."""
        numbers = list(groups)
        stored = at_once(lambda number: self.receipt(batch, attempt, number), numbers)
        return {number: receipt for number, receipt in zip(numbers, stored, strict=True) if receipt is not None}

    def failure(self, batch: int, name: str) -> Failure | None:
        """The error of a run of a task group, by the name that its starter gave the run."""
        return self._get(Failure, self.key("failures", batch, name))

    def put_failure(self, failure: Failure, batch: int, name: str) -> Failure:
        """Store what a run of a task group failed with."""
        return self._put(failure, self.key("failures", batch, name))

    def put_plan(self, plan: Plan) -> Plan:
        """Store a plan; the answer is the plan of that batch: another's, if that came first."""
        return self._put(plan, self.key("plans", plan.batch))

    def put_receipt(self, receipt: Receipt, batch: int) -> Receipt:
        """Store a receipt; the first of a group and attempt stays."""
        return self._put(receipt, self.key("receipts", batch, f"attempt-{receipt.attempt}", f"group-{receipt.group}"))

    def put_verdict(self, verdict: Verdict) -> Verdict:
        """Store the decision on a batch; the first stays. Raises Conflict if the first decided otherwise."""
        stored = self._put(verdict, self.key("verdicts", verdict.batch))
        if (stored.decision, stored.plan) != (verdict.decision, verdict.plan):
            what = f"batch {verdict.batch} is already decided: {stored.decision} ({stored.why})"
            where = self.uri(self.key("verdicts", verdict.batch))
            then = (Status(self.pipeline), " shows where the pipeline stands")
            raise Conflict.of(Kind.BATCH_DECIDED, what, where, then, batch=verdict.batch, decision=stored.decision)
        return stored

    def put_commit(self, commit: Commit) -> Commit:
        """Store the receipt of a publication; the first stays."""
        return self._put(commit, self.key("commits", commit.batch))

    def journal_entry(self, batch: int, part: Part, attempt: int | None = None) -> JournalEntry | None:
        """When a part of a batch was done first."""
        return self._get(JournalEntry, self._journal_key(batch, part, attempt))

    def put_journal_entry(self, entry: JournalEntry) -> JournalEntry:
        """Store when a part of a batch was done; the first stays."""
        return self._put(entry, self._journal_key(entry.batch, entry.part, entry.attempt))

    def verifications(self, table: str) -> Verifications:
        """What is remembered of the verifications of a table."""
        return self._verifications(table).newest() or Verifications(self.pipeline, table)

    def put_verification(self, table: str, found: Verification) -> Verifications:
        """Remember one more; what is known of the table then. What others remember meanwhile stays."""
        while not self._verifications(table).put((now := self.verifications(table).after(found)).number, now):
            pass
        return now

    def standing(self) -> Standing:
        """Where the pipeline stands now. Raises Refused if a plan is missing or names another parent."""
        newest = self._newest()
        if newest is None:
            return Standing()
        plan = self._expect(newest)
        verdict = self._decided(plan)
        published, child = (plan if _says_publish(verdict) else None), plan
        while published is None and child.batch > 0:
            before = self._expect(child.batch - 1)
            self._check_parent(child, before)
            decided = self._decided(before)
            if decided is None:
                what = f"batch {child.batch} is planned, but batch {before.batch} is undecided"
                where = self.uri(self.key("verdicts", before.batch))
                then = "restore the verdict from a backup"
                raise Refused.of(Kind.DOCUMENT_MISSING, what, where, then, batch=child.batch, undecided=before.batch)
            published, child = (before if _says_publish(decided) else None), before
        return Standing(plan, verdict, self.commit(newest), published)

    def published_before(self, batch: int) -> Plan | None:
        """The newest plan before `batch` whose verdict says publish. Raises Refused if one on the way is missing."""
        for earlier in range(batch - 1, -1, -1):
            plan = self._expect(earlier)
            if _says_publish(self._decided(plan)):
                return plan
        return None

    def attempt(self, batch: int) -> int:
        """The attempt to work on: the first that was not closed by a failed check."""
        attempt = 0
        while self.failed_check(batch, attempt) is not None:
            attempt += 1
        return attempt

    def close_attempt(self, batch: int, attempt: int, report: bytes) -> None:
        """Record that the checks of an attempt failed; the next run makes a new attempt."""
        self.store.put_new(self._closed_key(batch, attempt), report)

    def failed_check(self, batch: int, attempt: int) -> bytes | None:
        """The report with which an attempt was closed, None if it was not."""
        return self.store.get(self._closed_key(batch, attempt))

    def judgement(self, batch: int, attempt: int) -> bytes | None:
        """The result of an attempt's checks; None if the attempt was not judged."""
        return self.store.get(self._judgement_key(batch, attempt))

    def put_judgement(self, batch: int, attempt: int, report: bytes) -> None:
        """Store what the checks of an attempt say."""
        self.store.put(self._judgement_key(batch, attempt), report)

    def _verifications(self, table: str) -> NumberedLog[Verifications]:
        return NumberedLog(self.store, Verifications, f"{self.pipeline}/verifications/{table}")

    def _judgement_key(self, batch: int, attempt: int) -> str:
        return self.key("audits", batch, f"attempt-{attempt}", "judgement")

    def _journal_key(self, batch: int, part: Part, attempt: int | None) -> str:
        return self.key("journal", batch, *(() if attempt is None else (f"attempt-{attempt}",)), part)

    def _closed_key(self, batch: int, attempt: int) -> str:
        return self.key("receipts", batch, f"attempt-{attempt}", "failed")

    def _newest(self) -> int | None:
        pattern = re.compile(re.escape(f"{self.pipeline}/plans/") + r"([0-9]+)\.json\.gz")
        listed = [pattern.fullmatch(entry.key) for entry in self.store.list(f"{self.pipeline}/plans/", _LISTED)]
        hint = max((int(match[1]) for match in listed if match), default=-1)
        newest = last_from(hint, self.has_plan)
        if len(listed) == _LISTED:
            for beyond in _BEYOND_A_HOLE:
                if self.has_plan(newest + beyond):
                    newest = last_from(newest + beyond, self.has_plan)
        return newest if newest >= 0 else None

    def _expect(self, batch: int) -> Plan:
        plan = self.plan(batch)
        if plan is None:
            what, then = f"there are later plans, but no plan of batch {batch}", "restore it from a backup"
            raise Refused.of(Kind.DOCUMENT_MISSING, what, self.uri(self.key("plans", batch)), then, batch=batch)
        names = {self.pipeline, self.original.pipeline} if self.original else {self.pipeline}
        if plan.pipeline not in names or plan.batch != batch:
            what = f"this is the plan of batch {plan.batch} of {plan.pipeline!r}"
            where = self.uri(self.key("plans", batch))
            then = "restore the right one from a backup"
            raise Refused.of(Kind.DOCUMENTS_DISAGREE, what, where, then, batch=plan.batch, pipeline=plan.pipeline)
        return plan

    def _decided(self, plan: Plan) -> Verdict | None:
        verdict = self.verdict(plan.batch)
        if verdict is not None and verdict.plan != digest(plan):
            what = f"the verdict is on plan {verdict.plan}, but batch {plan.batch} is {digest(plan)}"
            where = self.uri(self.key("verdicts", plan.batch))
            then = "restore plan and verdict from a backup"
            raise Refused.of(
                Kind.DOCUMENTS_DISAGREE, what, where, then, batch=plan.batch, plan=digest(plan), found=verdict.plan
            )
        return verdict

    def _check_parent(self, plan: Plan, parent: Plan) -> None:
        if plan.parent != digest(parent):
            raise Refused.of(
                Kind.DOCUMENTS_DISAGREE,
                f"batch {plan.batch} names {plan.parent} as its parent, but batch {parent.batch} is {digest(parent)}",
                self.uri(self.key("plans", parent.batch)),
                "restore the plans from a backup",
                batch=plan.batch,
                parent=plan.parent,
                parent_batch=parent.batch,
                parent_parent=digest(parent),
            )

    def _own_verdict(self, batch: int) -> Verdict | None:
        return self._get(Verdict, self.key("verdicts", batch))

    def _get(self, kind: type[D], key: str) -> D | None:
        data = self.store.get(key)
        return None if data is None else self._read(kind, data, key)

    def _put(self, document: D, key: str) -> D:
        data = encode(document)
        stored = self.store.put_new(key, pack(data) if key.endswith(".gz") else data)
        return self._read(type(document), stored, key)

    def _read(self, kind: type[D], data: bytes, key: str) -> D:
        where = self.uri(key)
        return decode(kind, unpack(data, where) if key.endswith(".gz") else data, where)


@lru_cache(maxsize=2)
def _plan_in(packed: bytes, where: str) -> Plan:
    """The plan that these bytes are. Every step and task group of a batch reads its plan, which is long to decode."""
    return decode(Plan, unpack(packed, where), where)


def _says_publish(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.decision is Decision.PUBLISH
