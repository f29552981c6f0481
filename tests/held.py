"""A batch whose tasks wait at a gate, so that a test can do something while they run, in no time of the processor."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from tests.landed import land_table
from tests.running import next_batch
from tests.small import SmallBatch


def held_batch(gate: Path) -> SmallBatch:
    """A batch whose tasks wait while the gate is there."""
    source = f"s3://test/{gate.parent.name}/topics"
    rows = {"k": [f"key-{n}" for n in range(50)], "v": range(50), "gate": [str(gate)] * 50}
    land_table(pa.table(rows), "views", source, key="k", partitions=4)
    pipeline = Pipeline("held", source=source)
    views = pipeline.stream("views", key="k", partitions=4)
    held = views.process("tests.functions:held", {"k": "VARCHAR", "v": "BIGINT"})
    held.aggregate("sum(v)::BIGINT AS v").write("held")
    ref = next_batch(pipeline, f"s3://test/{gate.parent.name}/store", Settings(groups=1))
    gate.touch()
    return SmallBatch(ref, *ref.load())


def met(gate: Path) -> bool:
    """Whether a task has come to the gate."""
    return gate.with_suffix(".met").exists()


def waits(gate: Path) -> bool:
    """Whether a task waits for the gate."""
    gate.with_suffix(".met").unlink(missing_ok=True)
    time.sleep(1)
    return met(gate)
