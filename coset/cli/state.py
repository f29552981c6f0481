"""State: what steps keep from batch to batch, as a published batch left it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches import restoring
from coset.batches.kept import KeptState, kept_state, kept_states, rows_kept
from coset.batches.runners.runner import Runner
from coset.cli import pipelines
from coset.cli.output import show, show_json, show_table
from coset.cli.output import step as step_shown
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.sections import many, size

_SHOWN = 20


def show_state(
    named: str, root: str, step: str | None, batch: int | None, key: str | None, parquet: Path | None, *, as_json: bool
) -> None:
    """Print what a step keeps, or which steps keep something; write it to a file if one is named."""
    ledger = Ledger(store_at(root), pipelines.load(named).name)
    if step is None:
        _show_all(kept_states(ledger, batch), as_json=as_json)
        return
    state = kept_state(ledger, step, batch)
    if parquet:
        with rows_kept(ledger, state, key) as rows:
            count = _write(rows, parquet)
        show(f"{many(count, 'row')} written to {parquet}")
        return
    with rows_kept(ledger, state, key, _SHOWN) as rows:
        first = rows.read_all()
    if as_json:
        show_json(_plain(state) | {"rows": first.cast(_texts(first.schema)).to_pylist()})
        return
    _show_runs(state)
    of_key = "" if key is None else f" of key {key!r}"
    title = f"The first {_SHOWN} rows{of_key}" if len(first) == _SHOWN else f"The rows{of_key}"
    columns = first.column_names
    if len(first):
        show_table(title, columns, zip(*(first[name].to_pylist() for name in columns), strict=True))
    else:
        show(f"Nothing is kept{of_key}")


def restore(named: str, root: str, runner: Runner, *, as_json: bool) -> None:
    """Make anew what was lost of what steps keep, and say what."""
    with runner as used:
        made = restoring.restore(pipelines.load(named).name, store_at(root), used, step_shown)
    if as_json:
        show_json({"made": [f"{root}/{file.path}" for file in made]})
    elif made:
        show(
            f"Made anew: {many(len(made), 'object')} of state, as they were", *(f"{root}/{file.path}" for file in made)
        )
    else:
        show("There is nothing to make anew: all state that the next batch goes on from is as it was left")


def _show_all(states: tuple[KeptState, ...], *, as_json: bool) -> None:
    if as_json:
        show_json([_plain(state) for state in states])
    elif not states:
        show("No step keeps anything from batch to batch")
    else:
        columns = ("step", "placed by", "runs", "rows in them", "size")
        rows = [
            (state.step, state.read.placement, len(state.read.runs), f"{state.read.records:,}", size(sum(state.bytes)))
            for state in states
        ]
        show_table(f"What steps keep after batch {states[0].batch}", columns, rows)


def _show_runs(state: KeptState) -> None:
    title = f"What {state.step} keeps after batch {state.batch}, placed by {state.read.placement}"
    rows = [
        (run.batch, f"{run.records:,}", size(amount)) for run, amount in zip(state.read.runs, state.bytes, strict=True)
    ]
    show_table(title, ("left by batch", "rows", "size"), rows)


def _plain(state: KeptState) -> dict[str, object]:
    runs = zip(state.read.runs, state.bytes, strict=True)
    return {
        "step": state.step,
        "batch": state.batch,
        "placement": str(state.read.placement),
        "columns": {column.name: column.type for column in state.keeps.columns},
        "runs": [{"batch": run.batch, "rows": run.records, "bytes": amount} for run, amount in runs],
    }


def _texts(schema: pa.Schema) -> pa.Schema:
    """The same columns; what JSON has no form for as text."""
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return pa.schema(
        [field if any(kind(field.type) for kind in plain) else pa.field(field.name, pa.string()) for field in schema]
    )


def _write(rows: pa.RecordBatchReader, file: Path) -> int:
    try:
        with pq.ParquetWriter(file, rows.schema, compression="zstd", write_page_checksum=True) as writer:
            return sum((writer.write_batch(batch), len(batch))[1] for batch in rows)
    except OSError as error:
        what, then = f"the file cannot be written: {error}", "name a file in a folder that is there"
        raise Refused(Finding(Kind.LOCAL_FILE, what, str(file), then, about(file=file))) from error
