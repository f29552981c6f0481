"""Exchanges of random graphs, against every set of positions there is and against records that are really dealt out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.model.graph import Graph, Op, StateSpec, Step, Write
from partitioning.model.placement import OPAQUE, HashName, KeyFormat
from partitioning.model.reasons import Unplaced
from partitioning.model.statistics import Statistics
from partitioning.model.streams import Stream
from partitioning.planning.exchanges.cuts import cuts
from partitioning.planning.exchanges.vertex_cut import vertex_cut
from partitioning.values import replace
from tests.examples import examples
from tests.exchanged import paths, places, rekeying, tables, tables_of_one_task
from tests.ways import Way, Ways, weights

HASHES = st.sampled_from(["murmur2"] * 8 + ["java", "opaque"])
FORMATS = st.sampled_from([KeyFormat.STRING] * 8 + [KeyFormat.LONG])
COMMON = st.sampled_from(["rekey"] * 3 + ["merge"] * 4 + ["aggregate"] * 2 + ["filter", "select"])
RARE = st.sampled_from(
    [
        "join",
        "process",
        "process rekeyed",
        "partial",
        "repartition",
        "same key",
        "combine",
        "stateful",
        "stateful rekeyed",
        "one task",
        "all in one",
        "on dataframes",
        "on dataframes rekeyed",
    ]
)
OPTIONS: Mapping[str, dict[str, object]] = {
    "rekey": {"op": Op.REKEY, "rekeys": True},
    "same key": {"op": Op.REKEY, "rekeys": True, "expressions": ('"k"',)},
    "merge": {"op": Op.MERGE},
    "filter": {"op": Op.FILTER},
    "select": {"op": Op.SELECT},
    "process": {"op": Op.PROCESS},
    "process rekeyed": {"op": Op.PROCESS, "rekeys": True},
    "partial": {"op": Op.PARTIAL, "rekeys": True},
    "repartition": {"op": Op.REPARTITION, "hash": "java"},
    "aggregate": {"op": Op.AGGREGATE, "keyed": True},
    "combine": {"op": Op.COMBINE, "keyed": True, "state": StateSpec()},
    "join": {"op": Op.JOIN, "keyed": True},
    "stateful": {"op": Op.PROCESS, "keyed": True, "state": StateSpec()},
    "stateful rekeyed": {"op": Op.PROCESS, "keyed": True, "state": StateSpec(), "rekeys": True},
    "on dataframes": {"op": Op.SPARK, "keyed": True},
    "on dataframes rekeyed": {"op": Op.SPARK, "keyed": True, "rekeys": True},
    "one task": {"op": Op.PROCESS, "partitions": 1},
    "all in one": {"op": Op.COMBINE, "keyed": True, "key": ""},
}


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> Graph:
    """A graph of streams, many re-keyed, and some steps, often with an aggregate at the end.

    Every step that nothing reads is a table, and some others are.
    """
    streams = tuple(
        Stream(f"s{number}", "s3://landing/topics", "k", 4, draw(FORMATS), hash=HashName(draw(HASHES)))
        for number in range(draw(st.integers(1, 4)))
    )
    formats = {stream.name: stream.key_format for stream in streams}
    steps: list[Step] = []

    def add(name: str, kind: str, inputs: list[str]) -> None:
        step = _step(name, kind, inputs, formats)
        if step.op is Op.REPARTITION:
            step = replace(step, partitions=draw(st.sampled_from([None, 1, 5])))
        steps.append(step)
        formats[name] = step.key_format

    for stream in streams:
        if draw(st.booleans()):
            add(f"k{stream.name}", "rekey", [stream.name])
    for number in range(draw(st.integers(0, most))):
        kind = draw(st.one_of(COMMON, COMMON, COMMON, RARE))
        size = min(len(formats), 2 if kind in {"merge", "join"} else 1)
        # The latest names oftener, so that graphs are deep.
        known = st.sampled_from([*formats, *list(formats)[-3:]])
        add(f"t{number}", kind, draw(st.lists(known, min_size=size, max_size=4, unique=True)))
    if draw(st.integers(0, 3)):
        add("last", "aggregate", list(formats)[-1:])
    read = {name for step in steps for name in step.inputs}
    written = [step.name for step in steps if step.name not in read or draw(st.integers(0, 4)) == 0]
    return Graph(streams, tuple(steps), tuple(Write(f"of_{name}", name, "k", False, ()) for name in written))


def _step(name: str, kind: str, inputs: list[str], formats: Mapping[str, KeyFormat]) -> Step:
    key_format = formats[inputs[0]]
    if kind == "merge":
        inputs = [each for each in inputs if formats[each] == key_format]
    elif kind != "join":
        inputs = inputs[:1]
    plain = Step(name, Op.SELECT, tuple(inputs), "", (name,), "k", key_format)
    return replace(plain, **OPTIONS[kind])


def counts(graph: Graph) -> st.SearchStrategy[Statistics]:
    """Figures of all streams and steps but merges, whose counts are sums."""
    names = [stream.name for stream in graph.streams] + [step.name for step in graph.steps if step.op is not Op.MERGE]
    return st.lists(st.integers(0, 20), min_size=len(names), max_size=len(names)).map(
        lambda some: Statistics(0, dict(zip(names, some, strict=True)))
    )


@given(graphs(), st.data())
@settings(deadline=None, max_examples=examples(400))
def test_equal_keys_meet_and_tables_hold_what_they_would_without_tasks(graph: Graph, data: st.DataObject) -> None:
    made, found = cuts(graph, data.draw(st.one_of(st.none(), counts(graph))))
    assert tables(made, found) == tables_of_one_task(graph)


@given(graphs(), st.data())
@settings(deadline=None, max_examples=examples(400))
def test_each_unplaced_path_crosses_one_exchange_and_no_exchange_is_without_one(
    graph: Graph, data: st.DataObject
) -> None:
    statistics = data.draw(st.one_of(st.none(), counts(graph)))
    made, found = cuts(graph, statistics)
    ways = Ways(graph, weights(graph, statistics))
    steps = {step.name: step for step in graph.steps}
    changing = rekeying(graph)
    needed: set[str] = set()
    for path in paths(graph, made, found):
        step = steps[path.wants]
        dirty = path.start in changing or not ways.lies(path.start, ways.wanted[step.name])
        if dirty or step.op is Op.REPARTITION:
            assert len(path.exchanges) == 1, path
            needed.update(path.exchanges)
        else:
            assert len(path.exchanges) <= 1, path
    assert needed == {cut.source for cut in found}
    assert len(found) == len(needed)
    assert all(cut.readers and cut.wanted_by and cut.hash != OPAQUE for cut in found)
    for cut in found:
        if isinstance(cut.why, Unplaced) and cut.key:
            assert cut.why.dirty or cut.why.otherwise, cut


@given(graphs(most=4), st.data())
@settings(deadline=None, max_examples=examples(400))
def test_no_other_positions_move_fewer_records(graph: Graph, data: st.DataObject) -> None:
    statistics = data.draw(counts(graph))
    _, found = cuts(graph, statistics)
    ways = Ways(graph, weights(graph, statistics))
    steps = {step.name: step for step in graph.steps}
    records = weights(graph, statistics)
    changing = rekeying(graph)
    unplaced: dict[Way, list[set[str]]] = {}
    for path in paths(graph, graph, ()):
        wanted = ways.wanted[path.wants]
        if steps[path.wants].op is not Op.REPARTITION and (path.start in changing or not ways.lies(path.start, wanted)):
            unplaced.setdefault(wanted, []).append({path.start, *path.steps})
    least = 0
    for some in unplaced.values():
        positions = sorted(set().union(*some))
        tried = chain.from_iterable(combinations(positions, size) for size in range(len(positions) + 1))
        least += min(
            sum(records[name] for name in chosen) for chosen in tried if all(each & {*chosen} for each in some)
        )
    implicit = [cut for cut in found if steps.get(cut.wanted_by[0], graph.steps[0]).op is not Op.REPARTITION]
    assert sum(cut.moves or 0 for cut in implicit) == least
    late = {
        (ways.wanted[step.name], name)
        for step in graph.steps
        if places(step) and step.op is not Op.REPARTITION
        for name in step.inputs
    }
    shuffled = sum(records[name] for wanted, name in late if not ways.lies(name, wanted))
    assert sum((cut.moves or 0) + (cut.spares or 0) for cut in implicit) == shuffled


@given(graphs(), st.data())
@settings(deadline=None, max_examples=examples(200))
def test_an_unrelated_flow_and_one_more_table_change_nothing_else(graph: Graph, data: st.DataObject) -> None:
    made, found = cuts(graph)
    assert cuts(graph) == (made, found)
    more = Graph(
        (Stream("other", "s3://landing/topics", "k", 3), *graph.streams),
        (
            Step("dirty", Op.REKEY, ("other",), "", ("dirty",), "k", rekeys=True),
            Step("counted", Op.AGGREGATE, ("dirty",), "", ("counted",), "k", keyed=True),
            *graph.steps,
        ),
        (Write("of_other", "counted", "k", False, ()), *graph.writes),
    )
    wider, exchanges = cuts(more)
    assert tuple(step for step in wider.steps if step.name not in {"dirty", "counted"}) == made.steps
    assert wider.writes[1:] == made.writes
    assert [cut for cut in exchanges if cut.source != "dirty"] == list(found)


@given(st.data())
@settings(deadline=None, max_examples=examples(300))
def test_the_vertex_cut_is_the_cheapest_the_smallest_and_the_nearest_to_the_sinks(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    before = {v: data.draw(st.lists(st.integers(0, v - 1), unique=True)) if v else [] for v in range(size)}
    weights = {v: data.draw(st.integers(0, 4)) for v in range(size)}
    sources, sinks = (data.draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True)) for _ in range(2))

    def reaches(start: int, without: set[int]) -> set[int]:
        """The vertices before `start` and itself that can reach it without those."""
        if start in without:
            return set()
        return {start}.union(*(reaches(each, without) for each in before[start]))

    def separates(chosen: set[int]) -> bool:
        return not any(reaches(sink, chosen) & set(sources) for sink in sinks)

    tried = [{*some} for count in range(size + 1) for some in combinations(range(size), count)]
    valid = [some for some in tried if separates(some)]
    best = min((sum(weights[v] for v in some), len(some)) for some in valid)
    ties = [some for some in valid if (sum(weights[v] for v in some), len(some)) == best]

    def behind(chosen: set[int]) -> int:
        return len(set().union(*(reaches(sink, chosen) for sink in sinks)))

    found = vertex_cut(before, weights, sources, sinks)
    assert found in ties
    assert behind(set(found)) == min(behind(some) for some in ties)
    assert sum(behind(some) == behind(set(found)) for some in ties) == 1
