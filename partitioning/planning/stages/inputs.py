"""Inputs: the reads of each stage, and their places. The cosets of all stages must be known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import OPAQUE, Placement, newest_of
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput, StateInput, StreamInput
from partitioning.planning.changeover import Changeover
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages.draft import ReadKind, StageDraft, StageRead, apart, keys_of
from partitioning.planning.stages.stage_cosets import exchange_count
from partitioning.planning.stages.step_states import States
from partitioning.values import replace


class Inputs:
    """The inputs of all stages. An exchange has as many partitions as its readers want."""

    def __init__(
        self,
        graph: Graph,
        cuts: Mapping[str, Cut],
        drafts: Sequence[StageDraft],
        changed: Mapping[str, Changeover],
        states: States,
    ) -> None:
        self._streams = {stream.name: stream for stream in graph.streams}
        self._steps = {step.name: step for step in graph.steps}
        self._keys = keys_of(graph)
        self._cuts = cuts
        self._changeovers = changed
        self._states = states
        reads = [(draft, read) for draft in drafts for read in draft.reads]
        self._left = {read.step for _, read in reads if read.kind is ReadKind.RESULT}
        self._homes = {step.name: draft for draft in drafts for step in draft.steps}
        wants: dict[str, list[int]] = {}
        for draft, read in reads:
            if read.kind is ReadKind.EXCHANGE:
                wants.setdefault(read.name, []).append(draft.wants)
            elif over := self.moving(read, draft):
                wants.setdefault(over.exchange, []).append(draft.cosets)
        self._counts = {name: exchange_count(wanted) for name, wanted in wants.items()}

    def moving(self, read: StageRead, draft: StageDraft) -> Changeover | None:
        """The changeover of a stream, if a stage cannot read it before records have moved."""
        over = self._changeover(read)
        if over is None or not draft.count.keeps_keys or over.lies(draft.cosets, keeps=draft.keeps):
            return None
        return over

    def placement(self, exchange: str) -> Placement:
        """Where an exchange puts the records of its cut."""
        cut = self._cuts[exchange]
        return Placement(cut.key, cut.key_format, cut.hash, cut.partitions or self._counts[exchange])

    def moved(self, over: Changeover) -> Placement:
        """The new placement of records that a changeover moves."""
        return replace(_settled(self._stream(over.stream)), partitions=self._counts[over.exchange])

    def read_by(self, draft: StageDraft) -> StageDraft:
        """The draft with its inputs, and its steps with where their state is left."""
        states = [self._state(draft, step) for step in draft.steps]
        changeovers = (self._changeover(read) for read in draft.reads)
        return replace(
            draft,
            inputs=(*self._of(draft), *(read for read, _ in states if read is not None)),
            steps=tuple(step for _, step in states),
            changes=tuple(change for over in changeovers if over is not None for change in over.counts),
        )

    def _of(self, draft: StageDraft) -> Iterator[Input]:
        """What a stage reads, without its own state."""
        for read in draft.reads:
            match read.kind:
                case ReadKind.STREAM:
                    yield from self._of_stream(read, draft)
                case ReadKind.EXCHANGE:
                    yield ExchangeInput(read.name, read.step, self.placement(read.name))
                case ReadKind.RESULT:
                    yield ResultInput(read.name, read.step, self._homes[read.step].left(read.step))

    def _state(self, draft: StageDraft, step: Step) -> tuple[StateInput | None, Step]:
        read = step.inputs[0]
        return self._states.of(step, self._keys[read].key, draft.key_hashes[read], draft.count.by_scheme)

    def findings(self, draft: StageDraft) -> Iterator[Finding]:
        """Findings for a draft whose tasks would not bring equal keys together, or could not read their inputs."""
        where, inputs = f"stage {draft.name}", draft.inputs
        filtered = {name for task in draft.tasks for name in task.filters}
        if not draft.count.gathered:
            placed = {read.name: read.placement for read in inputs if not isinstance(read, StateInput)}
            yield from apart(draft.steps, draft.key_hashes, placed, where)
        for step in draft.steps:
            yield from self._states.findings(step, draft.key_hashes[step.inputs[0]], draft.cosets)
        for read in inputs:
            if read.name in filtered and (why := self._cannot_filter(read)):
                yield Finding.of(
                    Kind.SCHEME,
                    f"{why}, so its records cannot be told apart by hash, "
                    f"and {draft.cosets} tasks do not divide its {read.placement.partitions} partitions",
                    where,
                    "use cogroup, or a number of tasks that divides all partition counts",
                    read=read.name,
                    cosets=draft.cosets,
                    partitions=read.placement.partitions,
                )
        if draft.choice.partitioner and any(read.placement.hash == OPAQUE for read in inputs):
            for step in draft.steps:
                if step.state or step.name in self._left:
                    yield Finding.of(
                        Kind.SCHEME,
                        f"rows of {step.name} cannot be left by residue: their placement is {OPAQUE}, "
                        f"and {draft.choice.partitioner} may assign several residues to one task",
                        where,
                        "leave the partitioner out",
                        step=step.name,
                        partitioner=draft.choice.partitioner,
                    )
        for over in filter(None, (self.moving(read, draft) for read in draft.reads)):
            if over.hash == OPAQUE:
                what = (
                    f"{over.change}, but its placement is {OPAQUE}: "
                    "its records cannot be moved to where their keys belong, "
                    f"and {draft.cosets} tasks do not divide {over.shared}, the gcd of both counts"
                )
                then = f"use cogroup, or a number of tasks that divides {over.shared}, for this batch"
                yield Finding.of(
                    Kind.SCHEME, what, where, then, change=over.change, cosets=draft.cosets, shared=over.shared
                )

    def _changeover(self, read: StageRead) -> Changeover | None:
        return self._changeovers.get(read.name) if read.kind is ReadKind.STREAM else None

    def _of_stream(self, read: StageRead, draft: StageDraft) -> Iterator[Input]:
        stream, over = self._streams[read.name], self._changeover(read)
        whole = StreamInput(read.name, self._stream(read.name), stream.partitions, stream.null_keys)
        if over is None:
            yield whole
        elif self.moving(read, draft) is None:
            yield replace(whole, placement=replace(whole.placement, partitions=over.shared))
        else:
            if over.stays:
                yield replace(whole, placement=_settled(whole.placement))
            if over.new:
                yield replace(whole, only=over.new)
            yield ExchangeInput(over.exchange, read.name, self.moved(over))

    def _stream(self, name: str) -> Placement:
        stream = self._streams[name]
        return Placement(stream.key, stream.key_format, stream.hash, stream.partitions)

    def _cannot_filter(self, read: Input) -> str | None:
        if read.placement.hash == OPAQUE:
            return f"placement of {read.name} is {OPAQUE}"
        if isinstance(read, StateInput) and not _has(self._steps[read.step], read.placement.key):
            return f"{read.name} does not hold the key {read.placement.key} of what {read.step} reads"
        return None


def _settled(placement: Placement) -> Placement:
    """Where records lie by the newest hash of the placement."""
    return replace(placement, hash=newest_of(placement.hash))


def _has(step: Step, key: str) -> bool:
    """Whether the rows of a step have that column. Only those of a process step, which are declared, may lack a key."""
    return not step.columns or any(column.name == key for column in step.columns)
