"""States: which state the steps of a stage continue from, and where they leave their new state.

State is stored in runs. A batch writes only the state of the keys that it read, so its cost follows these keys. It
merges older runs as long as they are not larger than all newer ones together, so that there are few runs and each row
is rewritten only a few times (Bentley and Saxe's logarithmic method; LSM trees).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import gcd

from msgspec import UnsetType

from partitioning.commands import PlanAsking
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import NO_CHANGE, KeptVersion, StateSpec, Step, state_of
from partitioning.model.leaving import state_columns
from partitioning.model.placement import MURMUR2, OPAQUE, KeyHash, Placement, any_of, is_known
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.stage_inputs import StateInput, StateRun
from partitioning.model.table_mode import Updates
from partitioning.model.table_parts import TablePart, is_small
from partitioning.planning.kept_columns import kept_before, still_asked
from partitioning.planning.stages.draft import KeyHashes, StageContext, StageDraft, StateSnapshot
from partitioning.values import replace

# A partition of state is read by at most this many tasks after the number of tasks changed.
_READERS = 4


class States:
    """The states that the last published batch left, by step, without those of steps that begin `anew`.

    A step in `asked` also begins anew if its keys are now placed by another hash.
    """

    def __init__(
        self,
        published: Plan | None,
        kept: StateSnapshot | None,
        anew: Collection[str] = (),
        asked: Collection[str] = (),
        named: str = "",
        day_end: int | UnsetType | None = None,
    ) -> None:
        self._named = named
        self._day_end = day_end
        self._batch = published.batch if published else 0
        self._kept = kept
        stages = published.stages if published else ()
        self._anew = frozenset(anew)
        self._asked = asked
        self._steps = {
            step.name: (step, step.state)
            for stage in stages
            for step in stage.steps
            if step.state and step.name not in anew
        }
        self._read = {read.step: read for stage in stages for read in stage.inputs if isinstance(read, StateInput)}

    def left(self) -> Iterator[tuple[Step, StateInput]]:
        """Every step that had state, and that state as it was left."""
        for step, state in self._steps.values():
            place = _placement(state)
            runs = tuple(self._as_read(run, step) for run in unexpired(self._runs(step), state, self._day_end))
            columns, versions = state_columns(state), self._versions(step)
            yield step, StateInput(state_of(step.name), step.name, place, self._batch, columns, runs, versions)

    def of(self, step: Step, key: str, now: KeyHashes, cosets: int) -> tuple[StateInput | None, Step]:
        """The state that a step continues from (None if there is none), and the step with the place of its new state.

        Its stage has this many cosets, and the hashes `now` place the records that it reads.
        """
        if not step.state:
            return None, step
        key_hash = _only(now) or KeyHash(step.key_format, MURMUR2)
        anew = Placement(key, key_hash.key_format, key_hash.hash, cosets)
        read = None if self._lies_otherwise(step, now, cosets) else self._input(step, step.state, anew)
        placement = anew if read is None or read.unmerged < 0 else read.placement
        return read, replace(step, state=replace(step.state, placement=placement))

    def findings(self, step: Step, now: KeyHashes, cosets: int) -> Iterator[Finding]:
        """Why the step, in a stage of this many cosets, cannot continue from its state."""
        if not step.state or not (name := self._before(step)):
            return
        if self._lies_otherwise(step, now, cosets) and step.name not in self._asked:
            lies = _placement(self._steps[name][1])
            listed = " and ".join(sorted(map(_text, now)))
            what = f"its keys were placed by {_text(lies.key_hash)}, but its records are by {listed}"
            then = ("change it back, or ask for a new beginning: ", PlanAsking(self._named, begin_anew=step.name))
            yield Finding.of(
                Kind.STATE_CHANGED, what, f"state of {step.name}, left by batch {self._batch}", then, listed=listed
            )

    def _before(self, step: Step) -> str:
        """The name of the step whose state it continues from; empty if there is none, or if it begins anew."""
        return "" if step.name in self._anew else kept_before(step, self._steps)

    def _lies_otherwise(self, step: Step, now: KeyHashes, cosets: int) -> bool:
        """Whether what a step kept lies by another hash than its records do, and is not read by theirs."""
        if not (name := self._before(step)):
            return False
        lies = _placement(self._steps[name][1])
        differs = min(lies.partitions, cosets) > 1 and now != {lies.key_hash}
        return differs and (step.name in self._asked or not _can_be_read(lies.key_hash, _only(now)))

    def _input(self, step: Step, keeps: StateSpec, anew: Placement) -> StateInput | None:
        if not (name := self._before(step)):
            return None
        was, state = self._steps[name]
        lies = _placement(state)
        # One partition holds all keys, by any hash.
        placement = replace(anew, partitions=1) if lies.partitions == 1 else replace(lies, key=anew.key)
        otherwise = min(placement.partitions, anew.partitions) > 1 and placement.key_hash != anew.key_hash
        if otherwise:
            placement = replace(placement, hash=any_of([placement.hash, anew.hash]))
        declared = still_asked(step, was)
        runs = [self._as_read(run, step) for run in unexpired(self._runs(was), keeps, self._day_end)]
        moves = otherwise or declared.migrates or _moves(placement, anew.partitions)
        count = len(runs) if moves else _merged(runs)
        return StateInput(
            state_of(step.name),
            step.name,
            placement,
            self._batch,
            state_columns(state) if state.columns else (),
            tuple(replace(run, merged=place < count) for place, run in enumerate(runs)),
            self._versions(was),
            declared=declared if declared != NO_CHANGE else None,
            was=name if name != step.name else "",
        )

    def _versions(self, step: Step) -> tuple[KeptVersion, ...]:
        """The earlier versions of what a step kept that runs still have."""
        read = self._read.get(step.name)
        return read.versions if read else ()

    @staticmethod
    def _as_read(run: StateRun, step: Step) -> StateRun:
        """A run as an input of a step has it: with a name if that is not the input's."""
        return replace(run, name="") if run.name == state_of(step.name) else run

    def _runs(self, step: Step) -> list[StateRun]:
        """The runs of a state, newest first, each with the name under which it was written."""
        read, name = self._read.get(step.name), state_of(step.name)
        runs = [replace(run, name=read.written_as(run)) for run in read.runs if not run.merged] if read else []
        if self._kept and self._kept.records.get(name):
            newest = self._kept.records[name], self._kept.latest.get(name)
            size = self._kept.bytes.get(name, 0)
            runs.insert(0, StateRun(self._batch, self._kept.verdict, *newest, bytes=size, name=name))
        return runs


def _placement(state: StateSpec) -> Placement:
    assert state.placement is not None
    return state.placement


def unexpired(runs: Sequence[StateRun], keeps: StateSpec, day_end: int | UnsetType | None) -> list[StateRun]:
    """The runs with rows that are not expired. Any may have the newest version of a key."""
    if keeps.newest:
        return list(runs)
    since = keeps.since(max((run.latest for run in runs if run.latest is not None), default=None), day_end)
    return [run for run in runs if run.latest is None or since is None or run.latest >= since]


def _moves(placement: Placement, cosets: int) -> bool:
    """Whether all state must be written again, because too many tasks would read each of its partitions.

    State whose keys cannot be told apart by hash has one partition for each task.
    """
    if not placement.key or placement.hash == OPAQUE:
        return cosets != placement.partitions
    return cosets // gcd(cosets, placement.partitions) > _READERS


def _merged(runs: Sequence[StateRun]) -> int:
    """How many of the newest runs are merged: as many as reach one that is not larger than all newer ones.

    >>> sizes = [10, 10, 30, 100]
    >>> _merged([StateRun(4 - place, "", size) for place, size in enumerate(sizes)])
    2
    """
    count, newer = 0, 0
    for place, run in enumerate(runs):
        if place and run.records <= newer:
            count = place + 1
        newer += run.records
    return count


def _can_be_read(lies: KeyHash | None, now: KeyHash | None) -> bool:
    """Whether what lies by one hash can be read by another: of the same keys, by hashes that are known."""
    if lies is None or now is None:
        return False
    return lies.key_format == now.key_format and is_known(lies.hash) and is_known(now.hash)


def _only(key_hashes: KeyHashes) -> KeyHash | None:
    return next(iter(key_hashes)) if len(key_hashes) == 1 else None


def _text(key_hash: KeyHash | None) -> str:
    return str(key_hash) if key_hash else "no hash"


def planned_write(write: PlannedWrite, stage: StageDraft, context: StageContext) -> PlannedWrite:
    """How the next batch writes a table of a stage.

    It rewrites the table if the last batch did not upsert it from the same step, or if the state behind it moves to
    other partitions. A small batch writes beside the rows that are there, if the table is declared so and what it has
    is known: that of a backfill is not.
    """
    if not write.declared.mode.by_key:
        return write
    step, published = write.declared.step, context.published
    state = next(each.state for each in stage.steps if each.name == step)
    read = next((read for read in stage.inputs if isinstance(read, StateInput) and read.step == step), None)
    before = {other.declared.table: other.declared for other in published.writes()} if published else {}
    goes_on = before.get(write.declared.table)
    if read is None or state is False or read.placement != state.placement:
        return replace(write, anew=True)
    if goes_on is None or not goes_on.mode.by_key or goes_on.step != (read.was or step):
        return replace(write, anew=True)
    parts = context.parts.get(write.declared.table)
    if parts is None or write.declared.updates is Updates.REWRITE or not is_small(context.records, parts):
        return write
    merged = tuple(part.partition for part in parts if part.is_due)
    return replace(write, beside=True, merged=merged, since=_since(read, state, parts))


def _since(read: StateInput, state: StateSpec, parts: Sequence[TablePart]) -> int | None:
    """The batch since which rows are written once more: what was kept since is read and written again anyway. Rows of
    the largest files stay where they are."""
    bases = [part.base for part in parts if part.base is not None]
    if state.of_lives or read.migration or read.unmerged < 0 or len(bases) < len(parts):
        return None
    since = max([read.unmerged, *bases])
    return since if any(run.merged and run.batch > since for run in read.runs) else None
