"""States: what the steps of a stage go on from, as the last published batch left it, and how they leave it anew.

State is left in runs. A batch leaves what it kept of the keys that it got, and no others, so that its cost follows
these; older runs are merged into it as long as they are not larger than all newer ones, so that they stay few and each
row is written again a few times only (Bentley and Saxe's logarithmic method; LSM trees).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import gcd

from partitioning.commands import PlanAsking
from partitioning.errors import Finding, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.graph import StateSpec, Step, state_of
from partitioning.model.leaving import state_columns
from partitioning.model.placement import MURMUR2, OPAQUE, KeyHash, Placement
from partitioning.model.plan import Plan, StateInput, StateRun
from partitioning.model.verdict import Verdict
from partitioning.planning.stages.derived_hashes import KeyHashes
from partitioning.values import Value, replace

# In how many tasks a partition of state may be read, because their number is another than when it was first left.
_READERS = 4


class StateSnapshot(Value, frozen=True):
    """The state that a published batch left: its verdict's digest; records and greatest time, by name of the state."""

    verdict: str
    records: Mapping[str, int]
    latest: Mapping[str, int]

    @classmethod
    def by(cls, verdict: Verdict, digest: str) -> StateSnapshot:
        """What a verdict names as state."""
        records, latest = dict[str, int](), dict[str, int]()
        for artefact in verdict.artefacts:
            if artefact.role is Role.STATE:
                records[artefact.name] = records.get(artefact.name, 0) + artefact.records
                if artefact.latest is not None:
                    latest[artefact.name] = max(latest.get(artefact.name, artefact.latest), artefact.latest)
        return cls(digest, records, latest)


class States:
    """The states that the last published batch left, by step, but for those of steps that begin `anew`.

    Of those that are `asked` to, others do so too whose keys lie otherwise now.
    """

    def __init__(
        self,
        published: Plan | None,
        kept: StateSnapshot | None,
        anew: Collection[str] = (),
        asked: Collection[str] = (),
        named: str = "",
        day_end: int | None = None,
    ) -> None:
        self._named = named
        self._day_end = day_end
        self._batch = published.batch if published else 0
        self._kept = kept
        stages = published.stages if published else ()
        self._asked = asked
        self._steps = {
            step.name: (step, step.state)
            for stage in stages
            for step in stage.steps
            if step.state and step.name not in anew
        }
        self._read = {read.step: read for stage in stages for read in stage.inputs if isinstance(read, StateInput)}

    def left(self) -> Iterator[tuple[Step, StateInput]]:
        """Every step that kept something, and what it kept, as it was left."""
        for step, state in self._steps.values():
            place, runs = _placement(state), tuple(_unexpired(self._runs(step), state))
            yield step, StateInput(state_of(step.name), step.name, place, self._batch, state_columns(state), runs)

    def of(self, step: Step, key: str, now: KeyHashes, cosets: int) -> tuple[StateInput | None, Step]:
        """What a step goes on from, None if there is nothing, and the step with where its state is left.

        Its stage has so many cosets, and the records that it reads lie by `now`.
        """
        if not step.state:
            return None, step
        key_hash = _only(now) or KeyHash(step.key_format, MURMUR2)
        anew = Placement(key, key_hash.key_format, key_hash.hash, cosets)
        read = None if self._lies_otherwise(step, now, cosets) else self._input(step, step.state, anew)
        placement = anew if read is None or read.unmerged < 0 else read.placement
        return read, replace(step, state=replace(step.state, placement=placement))

    def misfits(self, step: Step, now: KeyHashes, cosets: int) -> Iterator[Finding]:
        """What keeps the step, in a stage of so many cosets, from going on from its state."""
        if not step.state or step.name not in self._steps:
            return
        if self._lies_otherwise(step, now, cosets) and step.name not in self._asked:
            lies = _placement(self._steps[step.name][1])
            listed = " and ".join(sorted(map(_text, now)))
            yield Finding(
                Kind.STATE_CHANGED,
                f"its keys were placed by {_text(lies.key_hash)}, but its records are by {listed}",
                f"state of {step.name}, left by batch {self._batch}",
                ("change it back, or ask for a new beginning: ", PlanAsking(self._named, begin_anew=step.name)),
                about(listed=listed),
            )

    def _lies_otherwise(self, step: Step, now: KeyHashes, cosets: int) -> bool:
        """Whether what a step kept lies by another hash than its records do."""
        if step.name not in self._steps:
            return False
        lies = _placement(self._steps[step.name][1])
        return min(lies.partitions, cosets) > 1 and now != {lies.key_hash}

    def _input(self, step: Step, keeps: StateSpec, anew: Placement) -> StateInput | None:
        if step.name not in self._steps:
            return None
        _, state = self._steps[step.name]
        lies = _placement(state)
        # In one partition lie all keys, by any hash.
        placement = replace(anew, partitions=1) if lies.partitions == 1 else replace(lies, key=anew.key)
        runs = _unexpired(self._runs(step), keeps)
        count = len(runs) if _moves(placement, anew.partitions) else _merged(runs)
        return StateInput(
            state_of(step.name),
            step.name,
            placement,
            self._batch,
            state_columns(state) if state.columns else (),
            tuple(replace(run, merged=place < count) for place, run in enumerate(runs)),
        )

    def _runs(self, step: Step) -> list[StateRun]:
        """What there is of a state, newest first."""
        read, name = self._read.get(step.name), state_of(step.name)
        runs = [run for run in read.runs if not run.merged] if read else []
        if self._kept and self._kept.records.get(name):
            newest = self._kept.records[name], self._kept.latest.get(name)
            runs.insert(0, StateRun(self._batch, self._kept.verdict, *newest))
        return [self._bounded(run) for run in runs]

    def _bounded(self, run: StateRun) -> StateRun:
        """A run whose greatest time is not after this day: earlier versions kept records of any time."""
        if self._day_end is None or run.latest is None:
            return run
        return replace(run, latest=min(run.latest, self._day_end))


def _placement(state: StateSpec) -> Placement:
    assert state.placement is not None
    return state.placement


def _unexpired(runs: Sequence[StateRun], keeps: StateSpec) -> list[StateRun]:
    """Those of which something is still kept."""
    since = keeps.since(max((run.latest for run in runs if run.latest is not None), default=None))
    return [run for run in runs if run.latest is None or since is None or run.latest >= since]


def _moves(placement: Placement, cosets: int) -> bool:
    """Whether state is to be left anew as a whole, because too many tasks read each of its partitions.

    Where its keys cannot be told apart by hash, it lies as the tasks do.
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


def _only(key_hashes: KeyHashes) -> KeyHash | None:
    return next(iter(key_hashes)) if len(key_hashes) == 1 else None


def _text(key_hash: KeyHash | None) -> str:
    return str(key_hash) if key_hash else "no hash"
