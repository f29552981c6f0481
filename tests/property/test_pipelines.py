"""Random pipelines under random plans, batch after batch, against the same steps over all records at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.documents.document import decode, encode
from partitioning.errors import Refused
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.schemes import HotKeys, Scheme
from partitioning.model.stage_inputs import StateInput
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.planning.changeover import changeovers
from partitioning.planning.planner import plan_batch
from partitioning.planning.stages.bounds import most_waves
from partitioning.values import Value, replace
from tests.examples import examples
from tests.pipeline_examples import Declared, Landing, Move, counts, keys, moves, pipeline_of, streams_of
from tests.plans import COLUMNS, arrived
from tests.runner import ByPlan, Directly

schemes = st.one_of(
    st.none(),
    st.just("cogroup"),
    st.integers(1, 9).map(lambda number: f"tasks({number})"),
    st.integers(1, 3).map(lambda factor: f"elastic({factor})"),
)


class Round(Value, frozen=True):
    """What happens before a batch and how it is planned. An abandoned batch is not published. Keys that are `hot` get a
    task of their own in each stage that can tell them apart."""

    counts: tuple[int, ...]
    keys: tuple[tuple[int, int | None], ...]
    scheme: str | None
    schemes: tuple[str | None, ...]
    dealt: tuple[int, ...]
    limit: int | None
    abandoned: bool
    hot: tuple[str, ...] = ()


rounds = st.builds(
    Round,
    st.tuples(counts, counts, counts),
    keys,
    schemes,
    st.lists(schemes, max_size=3).map(tuple),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
    st.one_of(st.none(), st.none(), st.integers(1, 4)),
    st.sampled_from([False, False, False, True]),
    # Texts of any key format.
    st.lists(st.sampled_from(["01", "02", "03"]), max_size=2, unique=True).map(tuple),
)


def settings_of(pipeline: Pipeline, chosen: Round) -> Settings:
    """A scheme for all stages, and schemes and partitioners for the stages of some keyed steps."""
    keyed = [step.name for step in pipeline.steps if step.keyed]
    named = zip(keyed[::2], chosen.schemes, strict=False)
    dealt = zip(keyed[1::2], chosen.dealt, strict=False)
    return Settings(
        Scheme.parse(chosen.scheme) if chosen.scheme else None,
        {name: Scheme.parse(scheme) for name, scheme in named if scheme},
        {name: PartitionerRef("tests.runner:Uneven", {"tasks": tasks}) for name, tasks in dealt if tasks},
        groups=3,
        limit=chosen.limit,
        hot_keys=HotKeys.OWN_TASK if chosen.hot else HotKeys.LEAVE,
    )


def with_hot(known: Statistics, plan: Plan, hot: tuple[str, ...]) -> Statistics:
    """Figures by which these keys make a task of each stage heavy."""
    tasks = [(stage, TaskRef(stage.name, task.task)) for stage in plan.stages for task in stage.tasks]
    return replace(
        known,
        tasks={task: TaskFigures(10_000, 1) for _, task in tasks},
        keys=tuple(
            KeyFigures(TaskRef(stage.name, 0), key, {stage.inputs[0].name: 9_000})
            for stage in plan.stages
            for key in hot
        ),
    )


def planned(
    pipeline: Pipeline, landing: Landing, batch: int, published: Plan | None, asked: Settings, known: Statistics
) -> Plan | None:
    found = [arrived(name, [len(rows) for rows in partitions]) for name, partitions in landing.landed.items()]
    results = {write.table: COLUMNS for write in pipeline.writes}
    return plan_batch(pipeline, found, results, batch=batch, published=published, settings=asked, statistics=known)


# What may be refused: choices that do not fit the pipeline, and partitions that vanish too early or come back.
FITS = (
    "cannot be told apart by hash",
    "cannot be moved to where their keys belong",
    "the partition is gone",
    "the topic was reset or re-created",
    "all records in one task, but the scheme is",
    "one stage is given different",
    "has none to assign",
    "has nothing to assign",
    "cannot be left by residue",
)


@given(
    streams_of,
    st.lists(moves, min_size=1, max_size=9),
    st.lists(rounds, min_size=1, max_size=4),
    keys,
    st.dictionaries(st.sampled_from(["s0", "s1", "s2"]), st.integers(0, 1000)).map(lambda some: Statistics(0, some)),
)
@settings(deadline=None, max_examples=examples(500), report_multiple_bugs=False)
def test_records_and_state_reach_their_tasks_whatever_the_pipeline_and_however_it_is_scaled(
    streams: list[Declared],
    steps: list[Move],
    history: list[Round],
    last: tuple[tuple[int, int | None], ...],
    known: Statistics,
) -> None:
    landing, by_plan, published, batch, counts = Landing(streams), ByPlan(), None, 0, history[0].counts
    direct = Directly(pipeline_of(streams, counts, steps).graph)
    for chosen in (*history, replace(history[-1], keys=last), replace(history[-1], keys=last)):
        # Only counts that a published batch has seen can be told from others.
        if (published.batch + 1 if published else 0) == batch:
            counts = chosen.counts
        landing.resize(counts)
        landing.produce(chosen.keys)
        pipeline, before = pipeline_of(streams, counts, steps), published
        asked = settings_of(pipeline, chosen)
        try:
            plan = planned(pipeline, landing, batch, before, asked, known)
            if plan is not None and chosen.hot:
                plan = planned(pipeline, landing, batch, before, asked, with_hot(known, plan, chosen.hot))
                assert plan is not None
        except Refused as refusal:
            unknown = [finding for finding in refusal.findings if not any(said in finding.what for said in FITS)]
            if unknown:
                raise
            return
        if plan is None:
            continue
        assert decode(Plan, encode(plan), "here") == plan
        assert len(plan.waves) <= most_waves(pipeline, asked)
        held, states = dict(by_plan.held), dict(direct.states)
        assert by_plan.batch(plan, landing.landed) == direct.batch(landing.read(plan))
        batch += 1
        if chosen.abandoned:
            by_plan.held, direct.states = held, states
        else:
            published = plan
        if before is not None and not chosen.hot and not changeovers(pipeline.streams, before.ends):
            fresh = planned(pipeline, landing, 0, None, asked, known)
            assert fresh is not None
            assert [timeless(stage) for stage in plan.stages] == [timeless(stage) for stage in fresh.stages]


def timeless(stage: Stage) -> Stage:
    """A stage without the state that it goes on from, which a first batch does not have."""
    inputs = tuple(read for read in stage.inputs if not isinstance(read, StateInput))
    names = {read.name for read in inputs}
    tasks = tuple(
        replace(
            task,
            reads={name: numbers for name, numbers in task.reads.items() if name in names},
            filters={name: kept for name, kept in task.filters.items() if name in names},
            keyless={name: numbers for name, numbers in task.keyless.items() if name in names},
        )
        for task in stage.tasks
    )
    return replace(stage, inputs=inputs, tasks=tasks)
