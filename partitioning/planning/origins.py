"""Origins: what a step's records come from, as a pipeline says it, so that two plans can be held against each other.

What changes no record is left out: how streams are partitioned, read and moved, how merges are nested, names of steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256

from partitioning.imports import SAYS, code_of
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Graph, Op, Step, list_items
from partitioning.model.mark_columns import CHANGE
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import NullKeys, Stream
from partitioning.values import Value, replace

_JOIN = re.compile(r" (ASOF LEFT|LEFT|FULL) JOIN ")
# How close in time records must be stands only in the compiled SQL. Only Coset's own SQL has the column @time.
_NEAR = re.compile(r'"@time" - .+?"@time"\) <= ([0-9]+)')
# So is it of what is distinct within a time.
_APART = re.compile(r'"@before" > ([0-9]+)\)')
# Which rows of a join in time are shown.
_SHOWN = re.compile(r'EXCLUDE \("@alone"\).* WHERE (.*)$')
_QUOTED_OR_BLANK = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\s+""")
_AS_WRITTEN = re.compile(r"--|/\*|\$|\b[eE]'")
_AS = re.compile(r"\s+AS\s+(\S+)$", re.IGNORECASE)
# What a cast at the end is of, the scale if it is to a decimal, and the name.
_CAST = re.compile(
    r"([\w.]*(?:\w|\(.*\)))::\s*(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(\s*\d+\s*,\s*(\d+)\s*\))(?:\s+AS\s+(\S+))?",
    re.IGNORECASE | re.DOTALL,
)
# A name that may be a column, or an alias that others in the list read. Texts are passed over.
_NAME = re.compile(r"""'(?:[^']|'')*'|(?<![\w.])(?:"((?:[^"]|"")+)"|([^\W\d]\w*))(?!\w|\s*[(.])""")
# It stands for all columns, whatever is made of each.
_ALL = re.compile(r"\bCOLUMNS\s*\(", re.IGNORECASE)
# The first expression of these steps is a list of columns; of a cogroup, each is.
_LISTING = {Op.SELECT, Op.AGGREGATE, Op.JOIN, Op.PARTIAL, Op.COMBINE}

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


def graph_of(plan: Plan) -> Graph:
    """The graph that a plan has in its stages."""
    stages = [stage for stage in plan.stages if not stage.repeats]
    return Graph(
        tuple(stream.declared for stream in plan.streams),
        tuple(step for stage in stages for step in stage.steps),
        tuple(write.declared for write in plan.writes()),
        _columns_of(plan.streams),
        plan.code,
    )


def over(graph: Graph, streams: Iterable[PlannedStream]) -> Graph:
    """The graph of a pipeline, where its streams have the columns of these, and functions the code of now: to be held
    against that of a plan."""
    code = {step.function: said for step in graph.steps if step.function and (said := code_of(step.function))}
    return replace(graph, columns=_columns_of(streams), code=code)


def with_known_code(*graphs: Graph) -> tuple[Graph, ...]:
    """Graphs without the code of functions of which one does not know what they say."""
    known = set.intersection(*({path for path, code in each.code.items() if code.startswith(SAYS)} for each in graphs))
    return tuple(replace(graph, code={path: graph.code[path] for path in sorted(known)}) for graph in graphs)


def _columns_of(streams: Iterable[PlannedStream]) -> dict[str, tuple[str, ...]]:
    return {stream.name: tuple(column.name for column in stream.columns) for stream in streams}


class Origins:
    """The origins of all steps of a graph, of a pipeline or of a plan."""

    def __init__(self, graph: Graph) -> None:
        self._steps = {step.name: step for step in graph.steps}
        self._streams = {stream.name: stream for stream in graph.streams}
        self._code = graph.code
        self._known: dict[str, StepOrigin] = {}
        self._given = {name: frozenset(map(str.lower, columns)) for name, columns in graph.columns.items()}
        for step in graph.steps:
            self._given[step.name] = _given(step, self._before(step))

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
        if _passes(step) and len(sources) == 1:
            return sources[0]
        reads = tuple(_reads(step, self._before(step)))
        return self._made(name, self._rows(step), tuple(_columns(step)), sources, tuple(_places(step)), reads)

    def called(self, step: Step) -> str:
        """The function that a step calls, with what is known of its code."""
        code = self._code.get(step.function or "")
        return f"{step.function} ({code})" if code else step.function or "none"

    def _rows(self, step: Step) -> str:
        return f"{step.op} {self.called(step)} by {step.key}" if step.function else _rows(step)

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
    alike = was.rows == now.rows and _same_columns(was, now) and len(was.sources) == len(now.sources)
    if not alike or _change_places(was, now) or [*_read_otherwise(was, now)]:
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


def alike(was: str, now: str) -> bool:
    """Whether two expressions give the same values: they are the same, but for the size of the whole number, or the
    digits before the point of the decimal, that they are cast to last.

    >>> alike("sum(n)::INTEGER AS n", "sum(n)::BIGINT AS n"), alike("n::INTEGER", "n::DOUBLE"), alike("n", "n::INTEGER")
    (True, False, False)
    """
    if was == now:
        return True
    one, other = _CAST.fullmatch(was), _CAST.fullmatch(now)
    return one is not None and other is not None and one.groups() == other.groups()


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


def _passes(step: Step) -> bool:
    """Whether it gives the records that it is given: a merge of one, a move, a table that nothing deletes from."""
    if step.op is Op.TO_STREAM:
        return CHANGE not in step.sql
    return step.op in {Op.MERGE, Op.REPARTITION} or (step.op is Op.TABLE and not step.expressions)


def _rows(step: Step) -> str:
    if step.op is Op.MERGE:
        return Op.MERGE.value
    texts = step.expressions[1:] if step.op in _LISTING else () if step.op is Op.COGROUP else step.expressions
    op = step.op.value
    if step.op is Op.FILTER and not texts:
        texts = tuple(text for text in _SHOWN.findall(step.sql) if text != "true")
    if step.op is Op.TABLE:
        # A table without state drops deleting records by a filter.
        op, texts = Op.FILTER.value, tuple(f"({text}) IS NOT TRUE" for text in texts)
    if step.op is Op.JOIN:
        op = f"{''.join(f'{kind.lower()} ' for kind in _JOIN.findall(step.sql))}{op}"
    apart = near(step) if step.op is not Op.DISTINCT else _between(step, _APART)
    within = "" if apart is None else f" within {timedelta(microseconds=apart)}"
    if step.state and step.state.of_lives:
        within = f" kept {timedelta(microseconds=step.state.microseconds)}"
    # Partial results are combined by key afterwards, whichever task has made them.
    matters = step.op is not Op.PARTIAL and (step.rekeys or (step.keyed and step.op is not Op.TABLE))
    by = f" by {step.key} ({step.key_format})" if matters else ""
    return f"{op} {', '.join(texts)}".rstrip() + within + by


def _places(step: Step) -> Iterator[str]:
    """The inputs of a join by the names that its SQL has, in their order; nothing for one that it does not name."""
    if step.op is Op.JOIN:
        for name in step.inputs:
            yield name if any(_names(name, text) for text in step.expressions) else ""


def _names(name: str, text: str) -> bool:
    return re.search(rf'(?<![\w."]){re.escape(name)}\.|"{re.escape(name)}"\.', text) is not None


def near(step: Step) -> int | None:
    """By how many microseconds the times of records may differ that an inner join in time puts together; None of other
    steps."""
    return _between(step, _NEAR)


def _between(step: Step, sql: re.Pattern[str]) -> int | None:
    found = sql.search(step.sql)
    return int(found[1]) if found else None


def _lists(step: Step) -> tuple[str, ...]:
    """The expressions that are lists of columns."""
    if step.op is Op.AGGREGATE:
        # What it groups by stands in one list with the columns.
        return (", ".join(step.expressions),)
    return step.expressions if step.op is Op.COGROUP else step.expressions[:1] if step.op in _LISTING else ()


def _given(step: Step, before: frozenset[str]) -> frozenset[str]:
    """The names of the columns that a step may give, in small letters."""
    named = {name.lower() for text in _lists(step) for name in items(text)}
    own = {column.name.lower() for column in step.columns} | named | {part.lower() for part in key_columns(step.key)}
    passes = not step.function and (not named or any(not name.isidentifier() for name in named))
    return before | own if passes else frozenset(own)


def _reads(step: Step, given: frozenset[str]) -> Iterator[tuple[str, str]]:
    """What the text of a step means by names for which it matters which columns it is given: one that it may give
    itself, and that others in the list read, is the column, if there is one; COLUMNS is all of them."""
    for text in _lists(step):
        found = Counter((found[1] or found[2] or "").lower() for found in _NAME.finditer(text))
        for name in sorted(name for name, often in found.items() if name and often > 1):
            yield name, "its input" if name in given else "its own"
    if any(_ALL.search(text) for text in step.expressions):
        yield "COLUMNS", ", ".join(sorted(given))


def _columns(step: Step) -> Iterator[tuple[str, str]]:
    """The columns that it makes, by name, each with its expression or, of a function's, its type."""
    if step.function:
        yield from ((column.name, f"{column.name} {column.type}") for column in step.columns)
    elif step.op is Op.COGROUP:
        for number, text in enumerate(step.expressions):
            yield from ((f"{number}.{name}", item) for name, item in items(text).items())
    elif step.op in _LISTING:
        yield from items(step.expressions[0]).items()


def items(text: str) -> Mapping[str, str]:
    """The expressions of a list by the names that they give.

    >>> dict(items("a, greatest(b, 1) AS c, 'x, y' AS d"))
    {'a': 'a', 'c': 'greatest(b, 1) AS c', 'd': "'x, y' AS d"}
    """
    listed = (_folded(item).strip() for item in list_items(text))
    return {found[1] if (found := _AS.search(item)) else item: item for item in listed}


def _folded(text: str) -> str:
    """With one blank for several outside of quotes; as it is where a line may end a comment, or quotes are others."""
    return text if _AS_WRITTEN.search(text) else _QUOTED_OR_BLANK.sub(lambda found: found[1] or " ", text)
