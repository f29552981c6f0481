"""State: what steps keep from batch to batch, as a published batch left it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches import restoring
from coset.batches.kept import KeptState, kept_state, kept_states, rows_kept
from coset.batches.runners.runner import Runner
from coset.cli import pipelines
from coset.cli.machine import writing
from coset.cli.output import Answer, Table
from coset.cli.output import step as step_shown
from coset.sources.plain_arrays import legible
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.explain.watermarks import event_time
from partitioning.model.mark_columns import in_words, is_time
from partitioning.sections import many, size

_SHOWN = 20


def kept(named: str, root: str, step: str | None, batch: int | None, key: str | None, parquet: Path | None) -> Answer:
    """What a step keeps, or which steps keep something; all its rows are written to a file if one is named."""
    pipeline = pipelines.load(named)
    ledger = Ledger(store_at(root), pipeline.name)
    if step is None:
        return _all(kept_states(ledger, batch))
    state = kept_state(ledger, step, batch)
    if parquet:
        with rows_kept(ledger, state, key, private=pipeline.private) as rows:
            count = _write(rows, parquet)
        return Answer({"file": str(parquet), "rows": count}, [f"{many(count, 'row')} written to {parquet}"])
    with rows_kept(ledger, state, key, _SHOWN, pipeline.private) as rows:
        first = legible(rows.read_all())
    of_key = "" if key is None else f" of key {key!r}"
    title = f"The first {_SHOWN} rows{of_key}" if len(first) == _SHOWN else f"The rows{of_key}"
    columns = [in_words(name, of_life=state.keeps.of_lives) for name in first.column_names]
    cells = zip(*map(_cells, first.column_names, first.columns), strict=True)
    plain = first.cast(_texts(first.schema)).to_pylist
    return Answer(
        _plain(state) | {"rows": plain}, [_runs(state), Table(title, columns, cells, empty=f"Nothing is kept{of_key}")]
    )


def restore(named: str, root: str, runner: Runner) -> Answer:
    """Make anew what was lost of what steps keep."""
    with runner as used:
        made = restoring.restore(pipelines.load(named).name, store_at(root), used, step_shown)
    paths = [f"{root}/{file.path}" for file in made]
    said = f"Made anew: {many(len(made), 'object')} of state, as they were"
    nothing = "There is nothing to make anew: all state that the next batch goes on from is as it was left"
    return Answer({"made": paths}, [said, *paths] if made else [nothing])


def _all(states: tuple[KeptState, ...]) -> Answer:
    columns = ("step", "placed by", "runs", "rows in them", "size")
    rows = [
        (state.step, state.read.placement, len(state.read.runs), state.read.records, size(sum(state.bytes)))
        for state in states
    ]
    title = f"What steps keep after batch {states[0].batch}" if states else ""
    return Answer(
        map(_plain, states), [Table(title, columns, rows, empty="No step keeps anything from batch to batch")]
    )


def _runs(state: KeptState) -> Table:
    title = f"What {state.step} keeps after batch {state.batch}, placed by {state.read.placement}"
    rows = [(run.batch, run.records, size(amount)) for run, amount in zip(state.read.runs, state.bytes, strict=True)]
    return Table(title, ("left by batch", "rows", "size"), rows)


def _plain(state: KeptState) -> dict[str, object]:
    runs = zip(state.read.runs, state.bytes, strict=True)
    return {
        "step": state.step,
        "batch": state.batch,
        "placement": str(state.read.placement),
        "columns": {column.name: column.type for column in state.keeps.columns},
        "runs": [{"batch": run.batch, "rows": run.records, "bytes": amount} for run, amount in runs],
    }


def _cells(name: str, column: pa.ChunkedArray) -> list[object]:
    """The values of a column for people. A time that is masked is a text already."""
    values: list[object] = column.to_pylist()
    return [event_time(value) if is_time(name) and isinstance(value, int) else value for value in values]


def _texts(schema: pa.Schema) -> pa.Schema:
    """The same columns; what JSON has no form for as text."""
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return pa.schema(
        [field if any(kind(field.type) for kind in plain) else pa.field(field.name, pa.string()) for field in schema]
    )


def _write(rows: pa.RecordBatchReader, file: Path) -> int:
    form = {"compression": "zstd", "write_page_checksum": True}
    with writing(file, "the file"), pq.ParquetWriter(file, rows.schema, **form) as writer:
        return sum((writer.write_batch(batch), len(batch))[1] for batch in rows)
