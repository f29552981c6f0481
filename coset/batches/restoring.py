"""Restoring: objects of state that were lost are made anew, by running again the batches that left them.

Tasks leave the same bytes each time, so what they leave now is known to be right by its digest, which a verdict has.
It is put where the lost object was: no plan, verdict or table changes, and an open batch goes on.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

from coset.batches.attempt import Attempt
from coset.batches.backfills.request import backfills, put
from coset.batches.backfills.swap import swaps
from coset.batches.interpreter import Show
from coset.batches.kept import kept_states
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.sources.files import Files
from coset.sources.pinned import not_as_planned
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import PlanAsking, Restore
from partitioning.documents.ledger import Ledger
from partitioning.documents.state_files import StateFiles
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.backfill import Backfill
from partitioning.model.graph import state_of
from partitioning.model.plan import Plan, StateInput
from partitioning.sections import many
from partitioning.values import Value, replace

_CHUNK = 4 << 20
# Where others have settings: nothing is planned.
_AS_PLANNED = "# as it was planned"
_OTHERWISE = "put the object back from a version or a backup of the bucket; its step does not give the same each time"


class Left(Value, frozen=True, order=True):
    """A batch that left state: by its number, and the name of the pipeline or backfill that ran it."""

    batch: int
    name: str

    def plan(self, store: Store) -> Plan:
        plan = Ledger(store, self.name).plan(self.batch)
        assert plan is not None
        return plan


def lost(ledger: Ledger) -> dict[Left, tuple[Artefact, ...]]:
    """The objects of state that the next batch goes on from and that are not as they were left, by who left them; and
    those that these were made from. The first to be made is the first."""
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
    """Make all state anew that is lost; what was made. It may be stopped, and run again by anyone.

    Raises Refused, with all findings, before anything runs if what the batches have read is gone or changed; if what
    they leave now is something else; and what running a group raises.
    """
    found = lost(Ledger(store, pipeline))
    plans = {left: left.plan(store) for left in found}
    if findings := [_without_input(finding, pipeline, found) for finding in _changed_input(plans, pipeline)]:
        raise Refused(*findings)
    for left, files in found.items():
        request = _request(store, pipeline, left)
        _run_again(store, request, plans[left], files, runner, show)
        why = f"{many(len(files), 'object')} of state {'was' if len(files) == 1 else 'were'} made anew"
        swaps.cancel(store, request, who=request.who, why=why, at=_now())
    return tuple(chain.from_iterable(found.values()))


def _is_there(store: Store, file: Artefact) -> bool:
    entry = store.head(file.path)
    return entry is not None and (entry.size, entry.etag) == (file.size, file.etag)


def _made_from(ledger: Ledger, plan: Plan) -> Iterator[tuple[int, Artefact]]:
    """The state that a batch went on from."""
    files = StateFiles(ledger, plan)
    for read in (read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)):
        for run in read.runs:
            yield from ((run.batch, file) for file in files.of(read, run))


def _changed_input(plans: Mapping[Left, Plan], pipeline: str) -> Iterator[Finding]:
    return not_as_planned((stream for plan in plans.values() for stream in plan.streams), Restore(pipeline))


def _without_input(finding: Finding, pipeline: str, lost: Mapping[Left, Sequence[Artefact]]) -> Finding:
    what = f"state that was lost was made from this: {finding.what}"
    step = min(file.name for files in lost.values() for file in files).removesuffix(state_of(""))
    then = (
        "put the file back as it was, then ",
        Restore(pipeline),
        "; or put the lost objects back from a version or a backup of the bucket; or give the open batch up, rename "
        f"{step} and ask for its beginning by the new name: ",
        PlanAsking(pipeline, begin_anew="NAME"),
    )
    return replace(finding, kind=Kind.STATE_GONE, what=what, next=then)


def _request(store: Store, pipeline: str, left: Left) -> Backfill:
    """The backfill that makes the state of a batch anew: one that was begun, or a new one."""
    over, known = swaps.cancelled(store, pipeline), list(backfills(store, pipeline))
    why = f"state that batch {left.batch} of {left.name} left was lost"
    for request in known:
        if (request.settings, request.why) == (_AS_PLANNED, why) and request.number not in over:
            return request
    asked = Backfill(pipeline, len(known), (left.batch,), _AS_PLANNED, getpass.getuser(), why, _now())
    return put(store, asked)


def _run_again(
    store: Store, request: Backfill, plan: Plan, files: Sequence[Artefact], runner: Runner, show: Show
) -> None:
    """Run a batch as it was planned, beside what there is, and put what it leaves where the lost objects were."""
    ledger = Ledger(store, request.name)
    again = ledger.put_plan(replace(plan, pipeline=request.name))
    for number in chain.from_iterable(again.waves):
        with show(f"run group {number} of batch {plan.batch}") as said:
            said.append(runner.group(BatchRef.of(store, again), number))
    left = Attempt.of_open(ledger, again).artefacts
    made = {(file.name, file.task): file for file in left if file.role is Role.STATE}
    findings = [
        Finding(
            Kind.STATE_GONE,
            f"what task {file.task} of batch {plan.batch} leaves came out otherwise than what was lost",
            ledger.uri(file.path),
            _OTHERWISE,
            about(batch=plan.batch, state=file.name, task=file.task),
        )
        for file in files
        if (mine := made.get((file.name, file.task))) is None or mine.digest != file.digest
    ]
    if findings:
        raise Refused(*findings)
    for file in files:
        _put_back(ledger, made[file.name, file.task], file)


def _put_back(ledger: Ledger, made: Artefact, lost: Artefact) -> None:
    """Copy an object to where the same was lost, in the parts in which tasks write, so that it has the same etag."""
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
        what = "the object is put back, but the store gives it another size or etag"
        raise Refused(Finding(Kind.STATE_GONE, what, target, _OTHERWISE, about(file=lost.path)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
