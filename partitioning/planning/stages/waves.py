"""Waves: which steps run together between exchanges, and in which order.

Kafka Streams cuts a topology at its repartition topics and runs all parts at the same time. A batch reads an exchange
only when it is complete, so its stages run in waves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from partitioning.model.graph import Graph, Op, Step, union
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.exchanges.versions import reading_from
from partitioning.planning.stages.draft import ReadKind, StageDraft, StageRead, keys_of
from partitioning.values import Value, replace


class Waves(Value, frozen=True):
    """The stages in wave order, the cut of each exchange by its name, and the graph of the stages' steps."""

    drafts: tuple[StageDraft, ...]
    cuts: Mapping[str, Cut]
    graph: Graph


def waves(graph: Graph, cuts: Sequence[Cut]) -> Waves:
    """Cut a graph at its exchanges, at most one for each source.

    A step's wave is the largest number of exchanges on a path to it. A step on Spark's DataFrames counts as an
    exchange, because its rows exist only after its wave. Steps before any exchange read only streams, which any wave
    can read: they run in the first wave that needs them, so that nothing has to be stored. A stage is what is connected
    within a wave, by its steps or by what they read. Rows that a later wave needs without an exchange are a result. If
    a stage would read the same records both moved and unmoved, the moved ones get another name, `<name>.moved`.

    Users and views, of which the views are re-keyed:

    >>> from partitioning.authoring.pipeline import Pipeline
    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> views, users = (pipeline.stream(name, key="id", partitions=4) for name in ("views", "users"))
    >>> users.filter("active").join(views.rekey("user"), "1 AS one", name="seen").write("seen")
    >>> move = Cut("views.rekey", "user", "string", "murmur2", None, ("seen",), "", readers=("seen",))
    >>> for draft in waves(pipeline.graph, [move]).drafts:
    ...     print(draft.wave, draft.name, [step.name for step in draft.steps])
    0 views ['views.rekey']
    1 users+views.rekey.exchange ['users.filter', 'seen']
    """
    edges = _Edges(graph, cuts)
    if both := _read_twice(edges.drafts()):
        edges = _Edges(*_renamed(graph, cuts, both))
    return Waves(tuple(edges.drafts()), edges.named, edges.graph)


def _read_twice(drafts: Iterable[StageDraft]) -> set[str]:
    """The streams and steps that a stage reads in two forms."""
    twice: set[str] = set()
    for draft in drafts:
        times = Counter(read.step for read in draft.reads)
        twice.update(name for name, count in times.items() if count > 1)
    return twice


def _renamed(graph: Graph, cuts: Sequence[Cut], both: Collection[str]) -> tuple[Graph, list[Cut]]:
    """The graph with another name, where they move, for the records of what is read in two forms."""
    keys = keys_of(graph)
    taken = {name.lower() for name in keys}
    names: dict[str, str] = {}
    for source in (cut.source for cut in cuts if cut.source in both):
        name = f"{source}.moved"
        while name.lower() in taken:
            name += ".moved"
        names[source] = name
    readers = {(reader, cut.source) for cut in cuts for reader in cut.readers if cut.source in both}
    new = {
        source: Step(name, Op.MERGE, (source,), union([source]), (), keys[source].key, keys[source].key_format)
        for source, name in names.items()
    }
    steps = [new[stream.name] for stream in graph.streams if stream.name in new]
    for step in graph.steps:
        inputs = [names[name] if (step.name, name) in readers else name for name in step.inputs]
        steps.extend([reading_from(step, step.name, inputs), *([new[step.name]] if step.name in new else [])])
    moved = [replace(cut, source=names.get(cut.source, cut.source)) for cut in cuts]
    return replace(graph, steps=tuple(steps)), moved


# A step, or a read in some wave.
Node = str | tuple[int, StageRead]


class _Edges:
    """How the steps of a graph read each other, the streams and the exchanges."""

    def __init__(self, graph: Graph, cuts: Sequence[Cut]) -> None:
        self.graph = graph
        self.named = {f"{cut.source}.exchange": cut for cut in cuts}
        self._steps = {step.name: step for step in graph.steps}
        self._written = [write.step for write in graph.writes]
        self._crossed = {(cut.source, reader): name for name, cut in self.named.items() for reader in cut.readers}
        self._dataframes = {step.name for step in graph.steps if step.on_dataframes}
        self._wave = self._latest(self._earliest())
        self._declared = {step: place for place, step in enumerate(self._steps)}
        listed = [(ReadKind.STREAM, stream.name) for stream in graph.streams] + [
            (ReadKind.EXCHANGE, name) for name in self.named
        ]
        self._places = {source: place for place, source in enumerate(listed)}

    def drafts(self) -> list[StageDraft]:
        """The stages in wave order, then in that of what they read."""
        drafts = [self._draft(group) for group in _hanging_together(self._links())]
        return sorted(drafts, key=lambda draft: (draft.wave, self._place(draft.reads[0])))

    def _place(self, read: StageRead) -> int:
        """The place of a read in the order of all reads: streams, then exchanges, then results, as declared."""
        if read.kind == ReadKind.RESULT:
            return len(self._places) + self._declared[read.step]
        return self._places[read.kind, read.name]

    def _links(self) -> Iterator[tuple[Node, Node]]:
        """The pairs of nodes that are connected."""
        for name in (*(cut.source for cut in self.named.values()), *self._written):
            if name not in self._steps:
                stream = (0, StageRead(name, ReadKind.STREAM, name))
                yield stream, stream
        for step in self._steps.values():
            for name in step.inputs:
                yield step.name, self._node(name, step.name)

    def _draft(self, group: Sequence[Node]) -> StageDraft:
        steps = sorted((node for node in group if isinstance(node, str)), key=self._declared.__getitem__)
        reads = sorted((node[1] for node in group if not isinstance(node, str)), key=self._place)
        wave = self._wave[steps[0]] if steps else 0
        return StageDraft(wave, tuple(reads), tuple(self._steps[name] for name in steps))

    def _node(self, name: str, reader: str) -> Node:
        here = self._wave[reader]
        if (name, reader) in self._crossed:
            return here, StageRead(self._crossed[name, reader], ReadKind.EXCHANGE, name)
        if name not in self._steps:
            return here, StageRead(name, ReadKind.STREAM, name)
        return name if self._wave[name] == here else (here, StageRead(f"{name}.result", ReadKind.RESULT, name))

    def _earliest(self) -> dict[str, int]:
        """The largest number of exchanges on a path to each step."""
        crossed: dict[str, int] = {}
        for step in self._steps.values():
            crossed[step.name] = max(crossed.get(name, 0) + self._waits(step.name, name) for name in step.inputs)
        return crossed

    def _waits(self, reader: str, name: str) -> bool:
        """Whether a step can read another only when the wave of that has run."""
        return (name, reader) in self._crossed or name in self._dataframes

    def _latest(self, earliest: Mapping[str, int]) -> dict[str, int]:
        """The wave of each step, when those of wave 0 wait until they are needed as far as they can."""
        needed: dict[str, int] = {}
        for step in reversed(self._steps.values()):
            latest = earliest[step.name] or needed.get(step.name, 0)
            for name in step.inputs:
                at = 0 if self._waits(step.name, name) else latest
                needed[name] = min(needed.get(name, at), at)
        settled: dict[str, int] = {}
        for step in self._steps.values():
            waits = needed.get(step.name, 0)
            if earliest[step.name]:
                settled[step.name] = earliest[step.name]
            elif all(settled.get(name, waits) == waits for name in step.inputs):
                settled[step.name] = waits
            else:
                settled[step.name] = max(settled.get(name, 0) for name in step.inputs)
        # The task that has a join's kept records reads them.
        kept = {step.name for step in self._steps.values() if step.op is Op.RECENT}
        read = {name: settled[step.name] for step in self._steps.values() for name in kept.intersection(step.inputs)}
        return settled | read


def _hanging_together(links: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """The groups of nodes that are linked, directly or through others, each node once."""
    groups: dict[Node, list[Node]] = {}
    for node, neighbour in links:
        larger, smaller = groups.setdefault(node, [node]), groups.setdefault(neighbour, [neighbour])
        if larger is not smaller:
            if len(larger) < len(smaller):
                larger, smaller = smaller, larger
            larger.extend(smaller)
            groups.update(dict.fromkeys(smaller, larger))
    return list({id(group): group for group in groups.values()}.values())
