"""Restoring: makes lost objects of state again, by running the batches that wrote them.

Tasks write the same bytes each time, and a verdict has the digest of the lost object, so the new object can be checked.
It is put in the place of the lost one: no plan, verdict or table changes, and an open batch can continue.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from coset.batches.attempt import Attempt
from coset.batches.backfills import swaps
from coset.batches.backfills.request import backfills, put
from coset.batches.interpreter import Show
from coset.batches.kept import kept_states
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner, check_runs
from coset.sources.files import Files
from coset.sources.pinned import not_as_planned
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import PlanAsking, Restore
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import StateFiles
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from partitioning.model.graph import state_of
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Role
from partitioning.sections import many
from partitioning.values import Value, replace
from spark_jobs.engine.occasions import clock_time
from spark_jobs.worker_code import installed

_CHUNK = 4 << 20
# These requests have this in the place of settings, because they plan nothing.
_AS_PLANNED = "# as it was planned"
_OTHERWISE = "restore the object from a version or a backup of the bucket: its step gives other rows each time"


class Left(Value, frozen=True, order=True):
    """A batch that wrote state: its number, and the name of the pipeline or backfill that ran it."""

    batch: int
    name: str

    def plan(self, store: Store) -> Plan:
        plan = Ledger(store, self.name).plan(self.batch)
        assert plan is not None
        return plan


def lost(ledger: Ledger) -> dict[Left, tuple[Artefact, ...]]:
    """The lost or changed objects of state that the next batch needs, and those that making them needs.

    They are by the batch that wrote them, oldest first.
    """
    waiting = [
        (run.batch, file)
        for state in kept_states(ledger)
        for run, files in zip(state.read.runs, state.runs, strict=True)
        for file in files
    ]
    known, found = set[str](), dict[Left, list[Artefact]]()
    while waiting:
        batch, file = waiting.pop()
        if file.path in known:
            continue
        known.add(file.path)
        if not _is_there(ledger.store, file):
            left = Left(batch, file.path.partition("/")[0])
            if left not in found:
                waiting.extend(_made_from(Ledger(ledger.store, left.name), left.plan(ledger.store)))
            found.setdefault(left, []).append(file)
    return {left: tuple(sorted(found[left])) for left in sorted(found)}


def restore(pipeline: str, store: Store, runner: Runner, show: Show) -> tuple[Artefact, ...]:
    """Make all lost state again, and return its files. Any process may repeat this after an interruption.

    Raises Refused with all findings before anything runs if input of the batches is gone or changed, or if their steps
    need Spark and the runner has none, and later if the new state differs from the lost one. Raises the errors of
    running a group.
    """
    found = lost(Ledger(store, pipeline))
    plans = {left: left.plan(store) for left in found}
    for left, plan in plans.items():
        check_runs(plan.steps, f"batch {left.batch} of {left.name}", runner)
    refuse([_without_input(finding, pipeline, found) for finding in _changed_input(plans, pipeline)])
    for left, files in found.items():
        request = _request(store, pipeline, left)
        _run_again(store, request, plans[left], files, runner, show)
        why = f"{many(len(files), 'object')} of state {'was' if len(files) == 1 else 'were'} made again"
        swaps.cancel(store, request, who=request.who, why=why, at=clock_time())
    return tuple(chain.from_iterable(found.values()))


def _is_there(store: Store, file: Artefact) -> bool:
    entry = store.head(file.path)
    return entry is not None and (entry.size, entry.etag) == (file.size, file.etag)


def _made_from(ledger: Ledger, plan: Plan) -> Iterator[tuple[int, Artefact]]:
    """The files of state that a batch read."""
    files = StateFiles(ledger, plan)
    for read in plan.states:
        for run in read.runs:
            yield from ((run.batch, file) for file in files.of(read, run))


def _changed_input(plans: Mapping[Left, Plan], pipeline: str) -> Iterator[Finding]:
    return not_as_planned((stream for plan in plans.values() for stream in plan.streams), Restore(pipeline))


def _without_input(finding: Finding, pipeline: str, lost: Mapping[Left, Sequence[Artefact]]) -> Finding:
    what = f"the lost state was made from this: {finding.what}"
    step = min(file.name for files in lost.values() for file in files).removesuffix(state_of(""))
    then = (
        "restore the file as it was, then ",
        Restore(pipeline),
        "; or restore the lost objects from a version or a backup of the bucket; or abandon the open batch, rename "
        f"{step} and let it begin anew under the new name: ",
        PlanAsking(pipeline, begin_anew="NAME"),
    )
    return replace(finding, kind=Kind.STATE_GONE, what=what, next=then)


def _request(store: Store, pipeline: str, left: Left) -> Backfill:
    """The backfill that makes the state of a batch again: an unfinished one, or a new one."""
    over, known = swaps.cancelled(store, pipeline), list(backfills(store, pipeline))
    why = f"state that batch {left.batch} of {left.name} left was lost"
    for request in known:
        if (request.settings, request.why) == (_AS_PLANNED, why) and request.number not in over:
            return request
    asked = Backfill(pipeline, len(known), (left.batch,), _AS_PLANNED, getpass.getuser(), why, clock_time())
    return put(store, asked)


def _run_again(
    store: Store, request: Backfill, plan: Plan, files: Sequence[Artefact], runner: Runner, show: Show
) -> None:
    """Run a batch again as it was planned, as a backfill, and copy its state to the places of the lost objects."""
    ledger = Ledger(store, request.name)
    # Whichever version of DuckDB runs it: the digests of what was lost decide.
    again = ledger.put_plan(replace(plan, pipeline=request.name, engine=None))
    for number in chain.from_iterable(again.waves):
        with show(f"run group {number} of batch {plan.batch}") as said:
            said.append(runner.group(BatchRef.of(store, again), number))
    left = Attempt.of_open(ledger, again).artefacts
    made = {(file.name, file.task): file for file in left if file.role is Role.STATE}
    was, here = plan.planned_for.version, installed().duckdb
    otherwise = (
        _OTHERWISE if was == here else f"install duckdb=={was}, in which it was made, for this command; or {_OTHERWISE}"
    )
    otherwise = f"give this command the memory that the batch had, {_memory(store, plan)}; or {otherwise}"
    findings = [
        Finding.of(
            Kind.STATE_GONE,
            f"task {file.task} of batch {plan.batch} now writes other state than the lost one",
            ledger.uri(file.path),
            otherwise,
            batch=plan.batch,
            state=file.name,
            task=file.task,
        )
        for file in files
        if (mine := made.get((file.name, file.task))) is None or mine.digest != file.digest
    ]
    if findings:
        # Else the next one who tries would find its groups done.
        ledger.close_attempt(plan.batch, ledger.attempt(plan.batch), canonical({"findings": []}))
    refuse(findings)
    for file in files:
        _put_back(ledger, made[file.name, file.task], file)


def _memory(store: Store, plan: Plan) -> str:
    """The option with the memory of a batch's tasks, on which the order of their rows depends, as far as it is known:
    if it was too little for some."""
    ledger = Ledger(store, plan.pipeline)
    verdict = ledger.verdict(plan.batch)
    tasks = Attempt(ledger, plan, verdict.attempt).tasks if verdict else ()
    known = max((task.shortage.memory for task in tasks if task.shortage), default=None)
    return f"--memory {known / 10**6:.12g}MB" if known else "by --memory"


def _put_back(ledger: Ledger, made: Artefact, lost: Artefact) -> None:
    """Copy an object to the place of the lost one, in the part size of tasks, so that it has the same etag."""
    source, target = (ledger.uri(file.path) for file in (made, lost))
    files = Files()
    with (
        reaching("the object cannot be put back", target, AGAIN),
        files.stream(source) as stream,
        files.create(target) as sink,
    ):
        while chunk := stream.read(_CHUNK):
            sink.write(chunk)
    if not _is_there(ledger.store, lost):
        what = "the object is restored, but the store gives it another size or etag"
        raise Refused.of(Kind.STATE_GONE, what, target, _OTHERWISE, file=lost.path)
