"""Versions: the graph with its exchanges in place. A step between an exchange and what wants it reads moved records;
if something else reads the step too, that reads another version of it, which waits for no exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from partitioning.model.graph import Graph, Op, Step, quote, union
from partitioning.model.placement import KeyHash
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, places, target
from partitioning.planning.exchanges.estimates import EARLY
from partitioning.planning.exchanges.regions import Node
from partitioning.values import Value, replace


class Move(Value, frozen=True):
    """An exchange: the records of `node` go to where `target` puts them. `asked_by` is an explicit repartition."""

    node: Node
    target: KeyHash
    asked_by: str | None = None


class Moved(Value, frozen=True):
    """An exchange in the graph: the stream or step whose records it moves, and the steps that read them there."""

    move: Move
    source: str
    readers: tuple[str, ...]


class _Version(Value, frozen=True):
    """A stream or step on records that moved to where `moved` puts them; None: on those that nothing moved."""

    name: str
    moved: KeyHash | None = None


_Read = _Version | Move


def versions(
    graph: Graph, placed: Mapping[str, DerivedPlacement], chosen: Mapping[KeyHash, Sequence[Node]]
) -> tuple[Graph, tuple[Moved, ...]]:
    """The graph with the `chosen` exchanges, by where they move records to, and with all explicit repartitions.

    A step keeps its name on moved records; its other version is `<step>.early`. The unplaced inputs of a merge are
    brought together in `<merge>.moved`, and so is what moves twice. A name that is taken gets the ending again.
    """
    return _Writing(graph, _Reading(graph, placed, chosen)).written()


class _Reading:
    """The versions that each version of a step reads, and so all versions."""

    def __init__(
        self, graph: Graph, placed: Mapping[str, DerivedPlacement], chosen: Mapping[KeyHash, Sequence[Node]]
    ) -> None:
        self._steps = {step.name: step for step in graph.steps}
        self._placed = placed
        self._chosen = chosen
        self._needed = self._reached(graph)
        self._moves = self._standing(graph)

    def moves(self, node: Node) -> Sequence[Move]:
        """The exchanges that stand at a node."""
        return self._moves.get(node, ())

    def versions(self, name: str) -> tuple[_Version, ...]:
        """Those that there are of a step, the one that waits for nothing first."""
        return tuple(version for version in self._possible(name) if version in self._needed)

    def reads(self, version: _Version) -> tuple[_Read, ...]:
        """What a version of a step reads."""
        step = self._steps[version.name]
        if step.op is Op.REPARTITION:
            return (Move(Node(step.inputs[0]), target(step, self._placed), step.name),)
        key_hash = target(step, self._placed) if places(step) else version.moved
        if key_hash is None:
            return tuple(_Version(name) for name in step.inputs)
        if (together := Node(step.name, moved=True)) in self._chosen.get(key_hash, ()):
            left = [name for name in self._flattened(step, key_hash) if self._placed[name].lies(key_hash)]
            return (*(_Version(name) for name in left), Move(together, key_hash))
        return tuple(self._input(name, key_hash) for name in step.inputs)

    def parts(self, move: Move) -> tuple[str, ...]:
        """The streams and steps whose records an exchange moves."""
        if not move.node.moved:
            return (move.node.name,)
        flat = self._flattened(self._steps[move.node.name], move.target)
        return tuple(name for name in flat if not self._placed[name].lies(move.target))

    def _possible(self, name: str) -> tuple[_Version, ...]:
        return (_Version(name), *(_Version(name, key_hash) for key_hash in self._chosen))

    def _reached(self, graph: Graph) -> Set[_Read]:
        """The steps that are read, directly or through others, for the tables and for the steps that nothing reads."""
        inputs = {name for step in graph.steps for name in step.inputs}
        reached: set[_Read] = {_Version(write.step) for write in graph.writes}
        reached.update(_Version(step.name) for step in graph.steps if step.name not in inputs)
        for step in reversed(graph.steps):
            for version in [each for each in self._possible(step.name) if each in reached]:
                for read in self.reads(version):
                    reached.add(read)
                    if isinstance(read, Move):
                        reached.update(map(_Version, self.parts(read)))
        return reached

    def _standing(self, graph: Graph) -> Mapping[Node, Sequence[Move]]:
        """The exchanges that are read, by the node at which they stand: the chosen ones, then explicit repartitions."""
        chosen = [Move(node, key_hash) for key_hash, nodes in self._chosen.items() for node in nodes]
        explicit = [self.reads(_Version(step.name))[0] for step in graph.steps if step.op is Op.REPARTITION]
        standing: dict[Node, list[Move]] = {}
        for move in (*chosen, *explicit):
            if isinstance(move, Move) and move in self._needed:
                standing.setdefault(move.node, []).append(move)
        return standing

    def _input(self, name: str, key_hash: KeyHash) -> _Read:
        if self._placed[name].lies(key_hash):
            return _Version(name)
        if (node := Node(name)) in self._chosen.get(key_hash, ()):
            return Move(node, key_hash)
        return _Version(name, key_hash)

    def _flattened(self, merge: Step, key_hash: KeyHash) -> Iterator[str]:
        """The inputs of a merge; merges among them that hold placed and unplaced records give theirs."""
        waiting = [*reversed(merge.inputs)]
        while waiting:
            name = waiting.pop()
            step = self._steps.get(name)
            if step and step.op is Op.MERGE and self._placed[name].mixed(key_hash):
                waiting.extend(reversed(step.inputs))
            else:
                yield name


class _Writing:
    """The steps of the new graph, each after its inputs."""

    def __init__(self, graph: Graph, reading: _Reading) -> None:
        self._graph = graph
        self._reading = reading
        self._keys = {stream.name: (stream.key, stream.key_format) for stream in graph.streams}
        self._keys |= {step.name: (step.key, step.key_format) for step in graph.steps}
        self._taken = {name.lower() for name in self._keys}
        self._names = {_Version(stream.name): stream.name for stream in graph.streams}
        self._sources: dict[Move, str] = {}
        self._readers: dict[Move, list[str]] = {}
        self._steps: list[Step] = []

    def written(self) -> tuple[Graph, tuple[Moved, ...]]:
        for stream in self._graph.streams:
            self._leave(Node(stream.name))
        for step in self._graph.steps:
            self._leave(Node(step.name, moved=True))
            self._write(step)
            self._leave(Node(step.name))
        writes = tuple(replace(write, step=self._names[_Version(write.step)]) for write in self._graph.writes)
        moved = tuple(Moved(move, source, tuple(self._readers[move])) for move, source in self._sources.items())
        return replace(self._graph, steps=tuple(self._steps), writes=writes), moved

    def _write(self, step: Step) -> None:
        existing = self._reading.versions(step.name)
        keeps_name = next((version for version in existing if version.moved), _Version(step.name))
        for version in existing:
            ending = ".moved" if version.moved else EARLY
            name = step.name if version == keeps_name else self._free(step.name, ending)
            self._names[version] = name
            reads = self._reading.reads(version)
            for read in reads:
                if isinstance(read, Move):
                    self._readers.setdefault(read, []).append(name)
            self._steps.append(reading_from(step, name, [self._name(read) for read in reads]))

    def _leave(self, node: Node) -> None:
        """Give each exchange at a node a source of its own: it is by that name that its records are read."""
        for number, move in enumerate(self._reading.moves(node)):
            names = [self._names[_Version(name)] for name in self._reading.parts(move)]
            if node.moved or number > 0:
                names = [self._together(node.name, names)]
            self._sources[move] = names[0]

    def _together(self, of: str, names: list[str]) -> str:
        name = self._free(of, ".moved")
        key, key_format = self._keys[of]
        self._steps.append(Step(name, Op.MERGE, tuple(names), union(names), (), key, key_format))
        return name

    def _name(self, read: _Read) -> str:
        return self._sources[read] if isinstance(read, Move) else self._names[read]

    def _free(self, name: str, ending: str) -> str:
        name += ending
        while name.lower() in self._taken:
            name += ending
        self._taken.add(name.lower())
        return name


def reading_from(step: Step, name: str, names: list[str]) -> Step:
    """The step under another name and with other inputs. Its SQL still uses the old input names."""
    if names == list(step.inputs) or not step.sql:
        return replace(step, name=name, inputs=tuple(names))
    if step.op is Op.MERGE:
        return replace(step, name=name, inputs=tuple(names), sql=union(names))
    renamed = {new: old for new, old in zip(names, step.inputs, strict=True) if new != old}
    known_as = ", ".join(f"{quote(old)} AS (SELECT * FROM {quote(new)})" for new, old in renamed.items())

    def known(sql: str) -> str:
        return f"WITH {known_as} {sql}" if sql else ""

    keeps = step.state
    state = keeps and replace(keeps, sql=known(keeps.sql), apart=known(keeps.apart), times=known(keeps.times))
    return replace(step, name=name, inputs=tuple(names), sql=known(step.sql), state=state)
