"""Origins: what a step's records come from, as a pipeline says it, so that two plans can be held against each other.

What changes no record is left out: how streams are partitioned, read and moved, how merges are nested, names of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256

from partitioning.imports import SAYS, code_of
from partitioning.model.graph import Graph, Op, Step
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import NullKeys, Stream
from partitioning.planning.step_texts import alike, columns_made, given_by, passes, places, reads_of, rows_of
from partitioning.values import Value, replace

# What changes if a text means something else now, although it is the same.
NAMES = "names in step"
# What changes if a step does something else, or something else comes to it.
STEP, INPUTS = "step", "inputs of"
# What changes if a step comes between others.
NEW = "new step"
_OF_A_STEP = tuple(f"{noun} " for noun in (STEP, INPUTS, NEW, NAMES))
# What changed, from what, to what.
Change = tuple[str, str, str]


class StepOrigin(Value, frozen=True):
    """A stream or step: `rows` says which records it gives of what it comes from, `columns` what is in them. The SQL of
    a join names some of its sources, by their `places`. Some names in a text mean what there is: it `reads` them, each
    of what.

    Two of one `identity` give the same records.
    """

    name: str
    rows: str
    columns: tuple[tuple[str, str], ...]
    sources: tuple[StepOrigin, ...]
    identity: str
    places: tuple[str, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        listed = ", ".join(text for _, text in self.columns)
        if self.rows == Op.MERGE:
            listed = " and ".join(source.name for source in self.sources)
        return f"{self.rows}: {listed}" if listed else self.rows


# Whether a pair of an old and a new step is one of some.
Pairs = Callable[[StepOrigin, StepOrigin], bool]


def _none(was: StepOrigin, now: StepOrigin) -> bool:
    return False


def over(graph: Graph, streams: Iterable[PlannedStream]) -> Graph:
    """The graph of a pipeline, where its streams have the columns of these, and functions the code of now: to be held
    against that of a plan."""
    code = {step.function: said for step in graph.steps if step.function and (said := code_of(step.function))}
    return replace(graph, columns={stream.name: stream.names for stream in streams}, code=code)


def with_known_code(*graphs: Graph) -> tuple[Graph, ...]:
    """Graphs without the code of functions of which one does not know what they say."""
    known = set.intersection(*({path for path, code in each.code.items() if code.startswith(SAYS)} for each in graphs))
    return tuple(replace(graph, code={path: graph.code[path] for path in sorted(known)}) for graph in graphs)


class Origins:
    """The origins of all steps of a graph, of a pipeline or of a plan."""

    def __init__(self, graph: Graph) -> None:
        self._steps = {step.name: step for step in graph.steps}
        self._streams = {stream.name: stream for stream in graph.streams}
        self._code = graph.code
        self._known: dict[str, StepOrigin] = {}
        self._given = {name: frozenset(map(str.lower, columns)) for name, columns in graph.columns.items()}
        for step in graph.steps:
            self._given[step.name] = given_by(step, self._before(step))

    def of(self, name: str) -> StepOrigin:
        """The origin of a stream or step."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def of_inputs(self, step: Step) -> StepOrigin:
        """The origin of everything before a step."""
        return self._made(step.name, "", (), self._flattened(step))

    def _found(self, name: str) -> StepOrigin:
        if (stream := self._streams.get(name)) is not None:
            return self._made(name, _stream(stream), (), ())
        step = self._steps[name]
        sources = self._flattened(step)
        if passes(step) and len(sources) == 1:
            return sources[0]
        reads = tuple(reads_of(step, self._before(step)))
        return self._made(name, self._rows(step), tuple(columns_made(step)), sources, tuple(places(step)), reads)

    def called(self, step: Step) -> str:
        """The function that a step calls, with what is known of its code."""
        code = self._code.get(step.function or "")
        return f"{step.function} ({code})" if code else step.function or "none"

    def _rows(self, step: Step) -> str:
        return f"{step.op} {self.called(step)} by {step.key}" if step.function else rows_of(step)

    def _before(self, step: Step) -> frozenset[str]:
        """The names of the columns that a step may be given."""
        return frozenset[str]().union(*(self._given.get(name, ()) for name in step.inputs))

    def _flattened(self, step: Step) -> tuple[StepOrigin, ...]:
        """The inputs of a step; for a merge, the inputs of the merges inside it, in a fixed order."""
        if step.op is not Op.MERGE:
            return tuple(map(self.of, step.inputs))
        inputs = (self.of(name) for name in step.inputs)
        flat = (source for read in inputs for source in (read.sources if read.rows == Op.MERGE else (read,)))
        return tuple(sorted(flat, key=lambda source: source.identity))

    @staticmethod
    def _made(
        name: str,
        rows: str,
        columns: tuple[tuple[str, str], ...],
        sources: tuple[StepOrigin, ...],
        places: tuple[str, ...] = (),
        reads: tuple[tuple[str, str], ...] = (),
    ) -> StepOrigin:
        text = repr((rows, columns, [source.identity for source in sources], places, reads))
        return StepOrigin(name, rows, columns, sources, sha256(text.encode()).hexdigest(), places, reads)


def differences(was: StepOrigin, now: StepOrigin, but: Pairs = _none) -> Iterator[tuple[StepOrigin, StepOrigin]]:
    """The pairs of streams or steps where two origins differ, nearest first, but for some and what is above these. An
    added column is no difference."""
    if was.identity == now.identity or but(was, now):
        return
    same = was.rows == now.rows and _same_columns(was, now) and len(was.sources) == len(now.sources)
    if not same or _change_places(was, now) or [*_read_otherwise(was, now)]:
        yield was, now
        return
    for one, other in _paired(was, now):
        yield from differences(one, other, but)


def _read_otherwise(was: StepOrigin, now: StepOrigin) -> Iterator[tuple[str, str, str]]:
    """The names in the texts of both that mean something else now, with what of each they mean."""
    were = dict(was.reads)
    yield from ((name, were[name], of) for name, of in now.reads if were.get(name, of) != of)


def _change_places(was: StepOrigin, now: StepOrigin) -> bool:
    """Whether a name that the SQL of both has stands for another source."""
    both = {*was.places} & {*now.places} - {""}
    return any(was.places.index(name) != now.places.index(name) for name in both)


def _same_columns(was: StepOrigin, now: StepOrigin) -> bool:
    """Whether the columns of both are alike. A column in a form whose name is not seen may be one of the others that
    only one of them has."""
    old, new = dict(was.columns), dict(now.columns)
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    unseen = any(not name.isidentifier() for name in gone | come)
    return all(alike(old[name], new[name]) for name in old.keys() & new.keys()) and not (gone and come and unseen)


def told_changes(was: StepOrigin, now: StepOrigin, but: Pairs = _none) -> Iterator[Change]:
    """The differences as texts: what changed, from what, to what."""
    were = _behind(was)
    # Of a key's rows and of the keys that came, both may come of the step that changed.
    for old, new in dict.fromkeys(differences(was, now, but)):
        if str(old) == str(new) and (read := [*_read_otherwise(old, new)]):
            yield from ((f"{NAMES} {new.name}", f"{name}, {was},", f"{name}, {now}") for name, was, now in read)
        elif str(old) == str(new):
            yield f"{INPUTS} {new.name}", _listed(old.sources), _listed(new.sources)
        elif new.name not in were and _behind(new).get(old.name) == old.identity:
            yield f"{NEW} {new.name}", old.name, str(new)
        elif old.rows or new.rows:
            yield f"{STEP} {new.name}", str(old), str(new)
        else:
            yield "inputs", _listed(old.sources), _listed(new.sources)


def _behind(origin: StepOrigin) -> Mapping[str, str]:
    """A stream or step and all that it comes from: the identity of each by its name."""
    found, left = dict[str, str](), [origin]
    while left:
        if (each := left.pop()).name not in found:
            found[each.name] = each.identity
            left += each.sources
    return found


def step_of(noun: str) -> str:
    """The step of which a change is told, or the stream in its place; nothing of what is told of a step itself."""
    return next((noun.removeprefix(of) for of in _OF_A_STEP if noun.startswith(of)), "")


def said(change: Change) -> str:
    """A change as a sentence: of another step, or of the step or table itself.

    >>> print(said(("inputs of both", "a and b", "a and c")), said(("key", "a", "b")), sep="; ")
    the inputs of both changed from a and b to a and c; its key changed from a to b
    >>> print(said(("new step big", "orders", "filter n > 9")))
    step big is new, after orders: filter n > 9
    """
    noun, was, now = change
    if noun.startswith(NEW):
        return f"{noun.removeprefix('new ')} is new, after {was}: {now}"
    whose = ("" if noun.startswith(f"{STEP} ") else "the ") if step_of(noun) else "its "
    return f"{whose}{noun} changed from {was} to {now}"


def _listed(sources: Iterable[StepOrigin]) -> str:
    return " and ".join(source.name for source in sources)


def _paired(was: StepOrigin, now: StepOrigin) -> Iterator[tuple[StepOrigin, StepOrigin]]:
    """Sources that are beside each other. Those of a merge have no order: the same are left out."""
    if now.rows != Op.MERGE:
        return zip(was.sources, now.sources, strict=True)
    return zip(_but(was, now), _but(now, was), strict=True)


def _but(one: StepOrigin, other: StepOrigin) -> Iterator[StepOrigin]:
    """The sources of one that are not, or not as often, those of another."""
    left = Counter(source.identity for source in other.sources)
    for source in one.sources:
        if left[source.identity] > 0:
            left[source.identity] -= 1
        else:
            yield source


def _stream(stream: Stream) -> str:
    latest = ", the latest record of each key" if stream.table else ""
    keyless = ", also records without a key" if stream.null_keys is NullKeys.OWN_TASK else ""
    casts = "".join(f", {name} as {kind}" for name, kind in sorted(stream.cast.items()))
    beside = ", which lies in files of keys" if stream.keys else ""
    return f"{stream.name} by {stream.key} ({stream.key_format}){beside}{casts}{latest}{keyless}"
