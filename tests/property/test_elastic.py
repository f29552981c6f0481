"""`elastic(F)` under random pipelines: each stage has F times the tasks that it has without, whatever is before it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.reasons import AllTogether
from tests.pipeline_examples import Declared, Move, counts, moves, pipeline_of, streams_of
from tests.plans import arrived, plan_of


def planned(pipeline: Pipeline, scheme: str) -> Plan | None:
    found = [arrived(stream.name, [10] * stream.partitions) for stream in pipeline.streams]
    try:
        return plan_of(pipeline, found, scheme=scheme)
    except Refused:
        return None


@given(streams_of, st.lists(counts, min_size=3, max_size=3), st.lists(moves, max_size=8), st.integers(2, 4))
def test_a_factor_multiplies_the_tasks_of_each_stage_once(
    streams: Sequence[Declared], counts: Sequence[int], steps: Sequence[Move], factor: int
) -> None:
    pipeline = pipeline_of(streams, counts, steps)
    plain, elastic = planned(pipeline, "cogroup"), planned(pipeline, f"elastic({factor})")
    assume(plain is not None and elastic is not None)
    assert plain is not None
    assert elastic is not None
    # How many unifiers there are between stages follows from how many tasks write.
    assert {stage.name: stage.cosets for stage in elastic.stages if not stage.unifies} == {
        stage.name: stage.cosets * (1 if isinstance(stage.why, AllTogether) else factor)
        for stage in plain.stages
        if not stage.unifies
    }
