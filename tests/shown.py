"""Plans with exchanges, unifiers, state and several waves, made by hand, for tests of what shows plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.cosets import Reading, assign, assign_owned
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Exchange, Plan, PlannedWrite, Stage, TaskGroup, TaskRef
from partitioning.model.reasons import AsAsked, GcdOf, OnePerPartition, TaskCountReason, Unplaced
from partitioning.model.schemes import Scheme, SchemeKind
from partitioning.model.stage_inputs import (
    ExchangeInput,
    Input,
    PlannedPartition,
    PlannedStream,
    ResultInput,
    StateInput,
    StreamInput,
)
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.planning.stages.levels import with_levels
from partitioning.version import VERSION

COLUMNS = (Column("member", "VARCHAR"), Column("amount", "DOUBLE"))


def tails(
    scheme: str = "cogroup",
    *,
    flights: int = 12,
    batch: int = 0,
    groups: int = 2,
    condition: str = "dep_delay > 0",
    dealt: Sequence[Sequence[int]] | None = None,
) -> Plan:
    """Flights that meet planes; `dealt` says which cosets a partitioner gave each task."""
    pipeline = Pipeline("tail_activity", source="s3://landing/topics")
    flown = pipeline.stream("flights", key="tailnum", partitions=flights, null_keys="drop")
    planes = pipeline.table("planes", key="tailnum", partitions=8)
    late = flown.filter(condition, name="late")
    late.join(planes, "late.amount", name="joined").write("tail_activity")
    inputs = [stream(pipeline, "flights"), stream(pipeline, "planes")]
    whole = stage(pipeline, "flights+planes", inputs, ["late", "joined"], scheme=scheme, dealt=dealt)
    return plan(pipeline, [whole], batch=batch, groups=groups)


def merged(orders: int = 8, returns: int = 4, scheme: str = "cogroup", records: int = 250) -> Plan:
    """KAFKA-7294: orders, and returns with another key, merge before an aggregate: returns alone move."""
    pipeline = Pipeline("balances", source="s3://landing/topics")
    ordered = pipeline.stream("orders", key="member", partitions=orders)
    returned = pipeline.stream("returns", key="parcel", partitions=returns)
    kept = returned.filter("amount > 0", name="kept").rekey("member", name="by_member")
    ordered.merge(kept, name="all").aggregate("sum(amount) AS amount", name="balance").write("balances")
    moving = stage(pipeline, "returns", [stream(pipeline, "returns")], ["kept", "by_member"], scheme="max")
    placed = Placement("member", KeyFormat.STRING, MURMUR2, Scheme.parse(scheme).tasks([orders]))
    inputs: list[Input] = [stream(pipeline, "orders"), ExchangeInput("by_member.exchange", "by_member", placed)]
    meeting = stage(pipeline, "orders+by_member.exchange", inputs, ["all", "balance"], scheme=scheme, wave=1)
    exchange = Exchange(
        "by_member.exchange",
        "by_member",
        "returns",
        placed,
        ("balance",),
        _changed("by_member", "orders"),
        moves=600,
        spares=2000,
    )
    return plan(pipeline, [moving, meeting], [exchange], records=records)


def unified(views: int = 300, batch: int = 4, wrote: int = 3, totals: int = 1) -> Plan:
    """Views counted in parts, combined through unifiers into running totals, then counted by size."""
    pipeline = Pipeline("countries", source="s3://landing/topics")
    parts = pipeline.stream("views", key="member", partitions=views).partial("count(*) AS n", by="country", name="part")
    total = parts.combine("sum(n)::BIGINT AS n", running=True, fan_in=17, name="totals")
    total.to_stream().write("country_totals")
    total.to_stream(name="of_batch").rekey("size", sql="least(n, 10)", key_format="long", name="sized").aggregate(
        "count(*) AS countries", name="sizes"
    ).write("sizes")
    country, large = (
        Placement("country", KeyFormat.STRING, MURMUR2, totals),
        Placement("size", KeyFormat.LONG, MURMUR2, 4),
    )
    first = stage(pipeline, "views", [stream(pipeline, "views")], ["part"], scheme="max")
    second = stage(
        pipeline,
        "part.exchange",
        [
            ExchangeInput("part.exchange", "part", country),
            StateInput("totals.state", "totals", Placement("country", KeyFormat.STRING, MURMUR2, wrote), batch - 1),
        ],
        ["totals", "of_batch", "sized"],
        scheme=f"tasks({totals})",
        wave=1,
    )
    third = stage(
        pipeline,
        "sized.exchange",
        [ExchangeInput("sized.exchange", "sized", large)],
        ["sizes"],
        scheme="tasks(4)",
        wave=2,
    )
    levels = (18, 2) if views == 300 else ()
    exchanges = [
        Exchange(
            "part.exchange",
            "part",
            "views",
            country,
            ("totals",),
            _changed("part"),
            combine="totals" if levels else None,
            unifiers=levels,
        ),
        Exchange("sized.exchange", "sized", "part.exchange", large, ("sizes",), _changed("sized")),
    ]
    leveled, moved = with_levels([first, second, third], exchanges)
    return plan(pipeline, leveled, moved, batch=batch, groups=4)


def fed() -> Plan:
    """A stream joined with a re-keyed copy of its own totals: a later wave reads a result beside an exchange."""
    pipeline = Pipeline("chains", source="s3://landing/topics")
    sales = pipeline.stream("sales", key="shop", partitions=6)
    totals = sales.aggregate("sum(amount) AS amount, any_value(chain) AS chain", name="totals")
    chains = totals.rekey("chain", name="by_chain").aggregate("sum(amount) AS amount", name="chains")
    back = chains.rekey("shop", name="back")
    totals.join(back, "totals.amount", name="shares").write("shares")
    shop, chain = (Placement(key, KeyFormat.STRING, MURMUR2, 6) for key in ("shop", "chain"))
    stages = [
        stage(pipeline, "sales", [stream(pipeline, "sales")], ["totals", "by_chain"]),
        stage(
            pipeline,
            "by_chain.exchange",
            [ExchangeInput("by_chain.exchange", "by_chain", chain)],
            ["chains", "back"],
            scheme="tasks(6)",
            wave=1,
        ),
        stage(
            pipeline,
            "totals+back.exchange",
            [ResultInput("totals", "totals", shop), ExchangeInput("back.exchange", "back", shop)],
            ["shares"],
            scheme="tasks(6)",
            wave=2,
        ),
    ]
    exchanges = [
        Exchange("by_chain.exchange", "by_chain", "sales", chain, ("chains",), _changed("by_chain")),
        Exchange("back.exchange", "back", "by_chain.exchange", shop, ("shares",), _changed("back", "totals")),
    ]
    return plan(pipeline, stages, exchanges)


def stream(pipeline: Pipeline, name: str) -> StreamInput:
    """A stream as a stage reads it."""
    (declared,) = [each for each in pipeline.streams if each.name == name]
    placed = Placement(declared.key, declared.key_format, declared.hash, declared.partitions)
    return StreamInput(name, placed, declared.partitions, declared.null_keys)


def stage(
    pipeline: Pipeline,
    name: str,
    inputs: Sequence[Input],
    steps: Sequence[str],
    *,
    scheme: str = "cogroup",
    wave: int = 0,
    dealt: Sequence[Sequence[int]] | None = None,
) -> Stage:
    """A stage of these steps, its tasks by the coset rule; `dealt` says which cosets a partitioner gave each task."""
    asked = Scheme.parse(scheme)
    tasks = assign([(each.name, each.placement.partitions) for each in inputs], asked).tasks
    cosets, fixed = len(tasks), [each.placement.partitions for each in inputs if not isinstance(each, ExchangeInput)]
    if dealt is not None:
        tasks = assign_owned([Reading.of(each) for each in inputs], cosets, [tuple(owned) for owned in dealt])
    return Stage(
        name,
        tuple(inputs),
        tuple(step for step in pipeline.steps if step.name in steps),
        tuple(PlannedWrite(write, COLUMNS) for write in pipeline.writes if write.step in steps),
        asked,
        cosets,
        _why(asked, fixed, cosets),
        given=True,
        tasks=tasks,
        partitioner=None if dealt is None else "shop.parts:ByBytes",
        wave=wave,
    )


def _why(scheme: Scheme, counts: Sequence[int], cosets: int) -> TaskCountReason:
    match scheme.kind:
        case SchemeKind.MAX:
            return OnePerPartition()
        case SchemeKind.RECORDS:
            raise NotImplementedError("its tasks go by the records of a plan")
        case SchemeKind.TASKS:
            return AsAsked(cosets)
        case SchemeKind.COGROUP | SchemeKind.ELASTIC:
            return GcdOf(tuple(counts), cosets)


def _changed(step: str, *staying: str) -> Unplaced:
    """The reason of an exchange after the step that changed the keys of its records."""
    return Unplaced((step,), (), None, staying)


def plan(
    pipeline: Pipeline,
    stages: Sequence[Stage],
    exchanges: Sequence[Exchange] = (),
    *,
    batch: int = 0,
    groups: int = 2,
    records: int = 250,
) -> Plan:
    """A plan of these stages: as many records in each stream partition, ten bytes each, and task groups by wave."""
    dealt = list[TaskGroup]()
    for wave in sorted({each.wave for each in stages}):
        refs = [TaskRef(each.name, task.task) for each in stages if each.wave == wave for task in each.tasks]
        for own in (refs[number::groups] for number in range(min(groups, len(refs)))):
            dealt.append(TaskGroup(len(dealt), tuple(own), 100 * len(own), 10 * len(own), wave=wave))
    streams = tuple(PlannedStream(each, COLUMNS, tuple(_partitions(each, records))) for each in pipeline.streams)
    return Plan(
        pipeline.name,
        batch,
        "sha256:before" if batch else None,
        VERSION,
        streams,
        tuple(exchanges),
        tuple(stages),
        tuple(dealt),
        1,
        "balanced-sticky",
        (),
        {},
    )


def _partitions(declared: Stream, records: int) -> Iterable[PlannedPartition]:
    for number in range(declared.partitions):
        files = (InputFile(f"{number}.parquet", 10 * records, "etag", 0, records),)
        yield PlannedPartition(number, 0, 0, 0, records, 10 * records, files)
