"""Plans with exchanges, unifiers, state and several waves, made by hand, for tests of what shows plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.cosets.assignment import assign
from partitioning.model.placement import Placement
from partitioning.model.plan import (
    EXCHANGE,
    RESULT,
    STATE,
    STREAM,
    VERSION,
    Exchange,
    Input,
    Plan,
    PlannedPartition,
    PlannedStream,
    PlannedWrite,
    Stage,
    TaskGroup,
    TaskRef,
)
from partitioning.model.schemes import Scheme
from partitioning.model.streams import Column, InputFile, Stream
from partitioning.model.tasks import Residues, Task

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
    made = assign([(each.name, each.placement.partitions) for each in inputs], Scheme.parse(scheme)).tasks
    tasks = tuple(_dealt(number, owns, made) for number, owns in enumerate(dealt)) if dealt else None
    whole = stage(pipeline, "flights+planes", inputs, ["late", "joined"], scheme=scheme, tasks=tasks)
    return plan(pipeline, [whole], batch=batch, groups=groups)


def _dealt(number: int, owns: Sequence[int], made: Sequence[Task]) -> Task:
    """The task that stands for several of the coset rule's."""
    names = made[0].reads
    reads = {name: tuple(sorted({each for coset in owns for each in made[coset].reads[name]})) for name in names}
    filters = {name: Residues(len(made), tuple(owns)) for name in made[0].filters}
    return Task(number, reads, filters, owns=tuple(owns))


def merged(orders: int = 8, returns: int = 4, scheme: str = "cogroup", records: int = 250) -> Plan:
    """KAFKA-7294: orders, and returns with another key, merge before an aggregate: returns alone move."""
    pipeline = Pipeline("balances", source="s3://landing/topics")
    ordered = pipeline.stream("orders", key="member", partitions=orders)
    returned = pipeline.stream("returns", key="parcel", partitions=returns)
    kept = returned.filter("amount > 0", name="kept").rekey("member", name="by_member")
    ordered.merge(kept, name="all").aggregate("sum(amount) AS amount", name="balance").write("balances")
    moving = stage(pipeline, "returns", [stream(pipeline, "returns")], ["kept", "by_member"], scheme="max")
    placed = Placement("member", "string", "murmur2", Scheme.parse(scheme).tasks([orders]))
    inputs = [stream(pipeline, "orders"), Input("by_member.exchange", EXCHANGE, "by_member", placed)]
    meeting = stage(pipeline, "orders+by_member.exchange", inputs, ["all", "balance"], scheme=scheme, wave=1)
    exchange = Exchange(
        "by_member.exchange",
        "by_member",
        "returns",
        placed,
        ("balance",),
        "balance needs all records of a member in one task, and by_member gives returns another key",
        moves=600,
        spares=2000,
    )
    return plan(pipeline, [moving, meeting], [exchange], records=records)


def unified(views: int = 300, batch: int = 4, wrote: int = 3, totals: int = 1) -> Plan:
    """Views counted in parts, combined through unifiers into running totals, then counted by size: three waves."""
    pipeline = Pipeline("countries", source="s3://landing/topics")
    parts = pipeline.stream("views", key="member", partitions=views).partial("count(*) AS n", by="country", name="part")
    total = parts.combine("sum(n)::BIGINT AS n", running=True, fan_in=17, name="totals")
    total.write("country_totals")
    total.rekey("size", sql="least(n, 10)", key_format="long", name="sized").aggregate(
        "count(*) AS countries", name="sizes"
    ).write("sizes")
    country, large = (
        Placement("country", "string", "murmur2", totals),
        Placement("size", "long", "murmur2", 4),
    )
    first = stage(pipeline, "views", [stream(pipeline, "views")], ["part"], scheme="max")
    second = stage(
        pipeline,
        "part.exchange",
        [
            Input("part.exchange", EXCHANGE, "part", country),
            Input("totals.state", STATE, "totals", Placement("country", "string", "murmur2", wrote), batch=batch - 1),
        ],
        ["totals", "sized"],
        scheme=f"tasks({totals})",
        wave=1,
    )
    third = stage(
        pipeline,
        "sized.exchange",
        [Input("sized.exchange", EXCHANGE, "sized", large)],
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
            "totals needs each country in one task",
            combine="totals" if levels else None,
            unifiers=levels,
        ),
        Exchange("sized.exchange", "sized", "part.exchange", large, ("sizes",), "sizes needs each size in one task"),
    ]
    return plan(pipeline, [first, second, third], exchanges, batch=batch, groups=4)


def fed() -> Plan:
    """A stream joined with a re-keyed copy of its own totals: a later wave reads a result beside an exchange."""
    pipeline = Pipeline("chains", source="s3://landing/topics")
    sales = pipeline.stream("sales", key="shop", partitions=6)
    totals = sales.aggregate("sum(amount) AS amount, any_value(chain) AS chain", name="totals")
    chains = totals.rekey("chain", name="by_chain").aggregate("sum(amount) AS amount", name="chains")
    back = chains.rekey("shop", name="back")
    totals.join(back, "totals.amount", name="shares").write("shares")
    shop, chain = (Placement(key, "string", "murmur2", 6) for key in ("shop", "chain"))
    stages = [
        stage(pipeline, "sales", [stream(pipeline, "sales")], ["totals", "by_chain"]),
        stage(
            pipeline,
            "by_chain.exchange",
            [Input("by_chain.exchange", EXCHANGE, "by_chain", chain)],
            ["chains", "back"],
            scheme="tasks(6)",
            wave=1,
        ),
        stage(
            pipeline,
            "totals+back.exchange",
            [Input("totals", RESULT, "totals", shop), Input("back.exchange", EXCHANGE, "back", shop)],
            ["shares"],
            scheme="tasks(6)",
            wave=2,
        ),
    ]
    exchanges = [
        Exchange("by_chain.exchange", "by_chain", "sales", chain, ("chains",), "chains needs each chain in one task"),
        Exchange("back.exchange", "back", "by_chain.exchange", shop, ("shares",), "shares needs each shop in one task"),
    ]
    return plan(pipeline, stages, exchanges)


def stream(pipeline: Pipeline, name: str) -> Input:
    """A stream as a stage reads it."""
    (declared,) = [each for each in pipeline.streams if each.name == name]
    placed = Placement(declared.key, declared.key_format, declared.placement, declared.partitions)
    return Input(name, STREAM, name, placed)


def stage(
    pipeline: Pipeline,
    name: str,
    inputs: Sequence[Input],
    steps: Sequence[str],
    *,
    scheme: str = "cogroup",
    wave: int = 0,
    tasks: tuple[Task, ...] | None = None,
) -> Stage:
    """A stage of these steps, its tasks by the coset rule, or those given."""
    made = assign([(each.name, each.placement.partitions) for each in inputs], Scheme.parse(scheme)).tasks
    return Stage(
        name,
        tuple(inputs),
        tuple(step for step in pipeline.steps if step.name in steps),
        tuple(PlannedWrite(write, COLUMNS) for write in pipeline.writes if write.step in steps),
        scheme,
        len(made),
        "as given",
        made if tasks is None else tasks,
        partitioner=None if tasks is None else "shop.parts:ByBytes",
        wave=wave,
    )


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
        key_sample=1,
    )


def _partitions(declared: Stream, records: int) -> Iterable[PlannedPartition]:
    for number in range(declared.partitions):
        files = (InputFile(f"{number}.parquet", 10 * records, "etag", 0, records),)
        yield PlannedPartition(number, 0, 0, 0, records, 10 * records, files)
