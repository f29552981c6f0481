"""Change events of Debezium, seen in JSON lines of which nobody has declared that they are some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from partitioning.model.streams import DELETED, ChangeForm

Line = Mapping[str, object]


def form_of(files: Sequence[Sequence[Line]]) -> ChangeForm | None:
    """The form that all lines of some files have. None if they are no change events."""
    said = [_said(line) for lines in files for line in lines]
    if said and all({"op", "before", "after"} <= each.keys() for each in said):
        return ChangeForm.ENVELOPE
    return ChangeForm.UNWRAPPED if said and all("__deleted" in each for each in said) else None


def rows_of(files: Iterable[Sequence[Line]], form: ChangeForm) -> Iterator[list[dict[str, object]]]:
    """The rows that lines leave, each with the offset that its line has beside it."""
    for lines in files:
        yield [dict(_row(_said(line), form)) for line in lines]


def left_by(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records that leave a row, without saying so."""
    return records.filter(pc.invert(records.column(DELETED))).drop_columns([DELETED])


def _said(line: Line) -> Line:
    """What a line says, without its schema."""
    payload = line.get("payload")
    return payload if "schema" in line and isinstance(payload, dict) else line


def _row(said: Line, form: ChangeForm) -> Iterator[tuple[str, object]]:
    beside = {name: value for name, value in said.items() if "offset" in name.lower() and isinstance(value, int)}
    row = said["after"] if form is ChangeForm.ENVELOPE else said if said["__deleted"] == "false" else {}
    for name, value in (row if isinstance(row, dict) else {}).items():
        # Whatever else records were given beside their row begins so.
        if not name.startswith("__") and name not in beside:
            yield name, value
    yield from beside.items()
