"""Waves: which steps run together between exchanges, and in which order, before anything is counted.

Kafka Streams cuts a topology at its repartition topics and lets all parts run at the same time. A batch reads
an exchange when all of it is there, so its parts run in waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from partitioning.exchanges import Cut
from partitioning.graph import Graph, Step
from partitioning.plan import EXCHANGE, RESULT, STREAM


@dataclass(frozen=True, slots=True)
class Read:
    """What a part reads: `name` of a kind (see `plan.Input`), holding the records of the stream or step `step`."""

    name: str
    kind: str
    step: str


@dataclass(frozen=True, slots=True)
class Part:
    """A stage without its tasks: the steps that hang together in one wave, and what they read."""

    wave: int
    reads: tuple[Read, ...]
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """What it reads, so that steps which are added elsewhere do not change it."""
        return "+".join(read.name for read in self.reads)


@dataclass(frozen=True, slots=True)
class Waves:
    """The parts in wave order, and the cut of each exchange by its name."""

    parts: tuple[Part, ...]
    moved: Mapping[str, Cut]


def waves(graph: Graph, cuts: Sequence[Cut]) -> Waves:
    """Cut a graph at its exchanges, of which each source has at most one.

    A step's wave is the largest number of exchanges on a path to it. Steps that no exchange comes before read
    nothing but streams, which can be read in any wave: they run in the first that needs them, so that nothing
    has to be stored. A part is what hangs together within a wave, by its steps or by what they read. Rows that
    a later wave needs without an exchange are a result.

    Users and views, of which the views are re-keyed:

    >>> from partitioning.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> views, users = (pipeline.stream(name, key="id", partitions=4) for name in ("views", "users"))
    >>> users.filter("active").join(views.rekey("user"), "1 AS one", name="seen").write("seen")
    >>> move = Cut("views.rekey", "user", "string", "murmur2", None, ("seen",), "", readers=("seen",))
    >>> for part in waves(pipeline.graph, [move]).parts:
    ...     print(part.wave, part.name, [step.name for step in part.steps])
    0 views ['views.rekey']
    1 users+views.rekey.exchange ['users.filter', 'seen']
    """
    edges = _Edges(graph, {f"{cut.source}.exchange": cut for cut in cuts})
    parts = [edges.part(group) for group in _hanging_together(edges.links())]
    parts.sort(key=lambda part: (part.wave, edges.place(part.reads[0])))
    used = {read.name for part in parts for read in part.reads}
    return Waves(tuple(parts), {name: cut for name, cut in edges.named.items() if name in used})


# A step, or what is read in some wave.
Node = str | tuple[int, Read]


class _Edges:
    """How the steps of a graph read each other, the streams and the exchanges."""

    def __init__(self, graph: Graph, named: Mapping[str, Cut]) -> None:
        self.named = named
        self._steps = {step.name: step for step in graph.steps}
        self._written = [write.step for write in graph.writes]
        self._crossed = {(cut.source, reader): name for name, cut in named.items() for reader in cut.readers}
        self._wave = self._latest(self._earliest())
        self._declared = {step: place for place, step in enumerate(self._steps)}
        listed = [(STREAM, stream.name) for stream in graph.streams] + [(EXCHANGE, name) for name in named]
        self._places = {each: place for place, each in enumerate(listed)}

    def place(self, read: Read) -> int:
        """Where it stands among all that can be read: streams, then exchanges, then results, as declared."""
        if read.kind == RESULT:
            return len(self._places) + self._declared[read.step]
        return self._places[read.kind, read.name]

    def links(self) -> Iterator[tuple[Node, Node]]:
        """What hangs together, two by two."""
        for name in (*(cut.source for cut in self.named.values()), *self._written):
            if name not in self._steps:
                stream = (0, Read(name, STREAM, name))
                yield stream, stream
        for step in self._steps.values():
            for name in step.inputs:
                yield step.name, self._node(name, step.name)

    def part(self, group: Sequence[Node]) -> Part:
        """The part of the nodes that hang together. It reads a stream or step in one form only, if moved then so."""
        steps = sorted((node for node in group if isinstance(node, str)), key=self._declared.__getitem__)
        reads = sorted((node[1] for node in group if not isinstance(node, str)), key=self.place)
        form: dict[str, Read] = {}
        for read in (*(each for each in reads if each.kind == EXCHANGE), *reads):
            form.setdefault(read.step, read)
        wave = self._wave[steps[0]] if steps else 0
        kept = tuple(read for read in reads if form[read.step] is read)
        return Part(wave, kept, tuple(self._steps[name] for name in steps))

    def _node(self, name: str, reader: str) -> Node:
        here = self._wave[reader]
        if (name, reader) in self._crossed:
            return here, Read(self._crossed[name, reader], EXCHANGE, name)
        if name not in self._steps:
            return here, Read(name, STREAM, name)
        return name if self._wave[name] == here else (here, Read(f"{name}.result", RESULT, name))

    def _earliest(self) -> dict[str, int]:
        """The largest number of exchanges on a path to each step."""
        found: dict[str, int] = {}
        for step in self._steps.values():
            found[step.name] = max(found.get(name, 0) + ((name, step.name) in self._crossed) for name in step.inputs)
        return found

    def _latest(self, earliest: Mapping[str, int]) -> dict[str, int]:
        """The wave of each step, when those of wave 0 wait until they are needed as far as they can."""
        needed: dict[str, int] = {}
        for step in reversed(self._steps.values()):
            latest = earliest[step.name] or needed.get(step.name, 0)
            for name in step.inputs:
                at = latest - ((name, step.name) in self._crossed)
                needed[name] = min(needed.get(name, at), at)
        # What is moved as it is read stays where it is: a part could not read it as it lies as well.
        moved = {source for source, _ in self._crossed}
        found: dict[str, int] = {}
        for step in self._steps.values():
            waits = needed.get(step.name, 0)
            if earliest[step.name]:
                found[step.name] = earliest[step.name]
            elif all(found[name] == waits if name in found else name not in moved for name in step.inputs):
                found[step.name] = waits
            else:
                found[step.name] = max(found.get(name, 0) for name in step.inputs)
        return found


def _hanging_together(links: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """The groups of nodes that are linked, directly or through others, each node once."""
    groups: dict[Node, list[Node]] = {}
    for one, other in links:
        larger, smaller = groups.setdefault(one, [one]), groups.setdefault(other, [other])
        if larger is not smaller:
            if len(larger) < len(smaller):
                larger, smaller = smaller, larger
            larger.extend(smaller)
            groups.update(dict.fromkeys(smaller, larger))
    return list({id(group): group for group in groups.values()}.values())
