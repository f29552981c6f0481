"""Python steps: calls a user's function on the records of one task, as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import arrow_schema
from coset.sources.plain_arrays import columns_not_utf8
from partitioning.commands import Repeat
from partitioning.errors import Refused
from partitioning.imports import failed, imported, line_of
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.order import Order
from spark_jobs.engine.hashing import one_of_equals

Function = Callable[..., Any]


class FunctionStep:
    """A Python step in one task.

    The function gets the records in order, one batch at a time, which bounds its memory. It is not called without
    records. A function with `partitions=1` gets all records at once, and is called even if there are none.
    """

    def __init__(self, order: Order, step: Step) -> None:
        assert step.function is not None
        self._step = step
        self._schema = arrow_schema(step.columns)
        self._where = f"step {step.name!r}, {order}"
        self._then = ("correct the function, then ", Repeat())
        self._function: Function = imported(step.function, f"step {step.name!r}", tasks=True)
        self._read = 0

    def apply(self, rows: pa.RecordBatchReader, file: Path) -> pa.Table:
        """The function's result for all rows. It is spilled to a new file, which is mapped into memory.

        Raises Refused if the function fails or its result is not what the step declares.
        """
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            for given in self._tables(rows):
                writer.write_table(self._as_declared(given, self._called(given)))
                self._read += len(given)
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    def apply_keeping(self, rows: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The function's result and new state, from the rows and the state of their keys.

        It is not called without rows. Raises Refused as `apply` does, and if the new state has a key that no row has.
        """
        assert self._step.state
        schema = arrow_schema(self._step.state.columns)
        if not len(rows):
            return self._schema.empty_table(), schema.empty_table()
        made = self._called(rows, kept)
        if not isinstance(made, tuple) or len(made) != 2:
            what = f"the function {self._step.function} did not return two tables, rows and state"
            raise self._refused(f"{what}, but {type(made).__name__}")
        table, keeps = self._as_declared(rows, made[0]), self._typed(made[1], schema)
        key = self._step.state.placement.key if self._step.state.placement else ""
        for strange in _strange(keeps[key], rows[key]):
            what = f"the function {self._step.function} returned state of the key {strange!r}"
            raise self._refused(f"{what}, which is not in its input")
        return table, keeps

    def apply_once(self, kept: pa.Table) -> pa.Table:
        """New rows of what the step keeps, from all those that it kept. It is not called without rows.

        Raises Refused as `apply` does.
        """
        assert self._step.state
        schema = arrow_schema(self._step.state.columns)
        return self._typed(self._called(kept), schema) if len(kept) else schema.empty_table()

    def _tables(self, rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
        if self._step.partitions == 1:
            yield rows.read_all()
        else:
            yield from (pa.Table.from_batches([batch]) for batch in rows if len(batch))

    def _called(self, given: pa.Table, *kept: pa.Table) -> Any:
        before = dict(os.environ)
        try:
            return self._function(given, *kept)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            what = f"the function {self._step.function} {failed(error)}"
            first, records = (0, given) if kept else self._least(given)
            raise self._refused(what, first, records, line_of(error)) from error
        finally:
            # Later work in this process needs the store's variables, which the function may have changed.
            if os.environ != before:
                os.environ.clear()
                os.environ.update(before)

    def _least(self, given: pa.Table) -> tuple[int, pa.Table]:
        """The first records on which the function fails, as few as halving finds, and their position."""
        first = 0
        while (half := len(given) // 2) and self._step.partitions != 1:
            if self._fails(given.slice(0, half)):
                given = given.slice(0, half)
            elif self._fails(given.slice(half)):
                first, given = first + half, given.slice(half)
            else:
                break
        return first, given

    def _fails(self, given: pa.Table) -> bool:
        try:
            self._function(given)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return True
        return False

    def _as_declared(self, given: pa.Table, made: Any) -> pa.Table:
        """The function's result in the declared columns and types."""
        table = self._typed(made, self._schema)
        key = self._step.key
        if key and not self._step.rekeys:
            for strange in _strange(table[key], given[key]):
                raise self._refused(returned_strange_key(self._step, strange))
        return table

    def _typed(self, made: Any, schema: pa.Schema) -> pa.Table:
        if not isinstance(made, pa.Table):
            what = f"the function {self._step.function} returned {type(made).__name__}, not pyarrow.Table"
            raise self._refused(what)
        if missing := [name for name in schema.names if name not in made.column_names]:
            listed = ", ".join(made.column_names) or "none"
            what = f"the result of {self._step.function} has no column {', '.join(missing)}"
            raise self._refused(f"{what}; it has {listed}")
        try:
            typed = made.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._refused(wrong_types(self._step, error)) from error
        for name in columns_not_utf8(typed):
            raise self._refused(returned_no_text(self._step, name))
        return typed

    def _refused(self, what: str, first: int = 0, records: pa.Table | None = None, line: str = "") -> Refused:
        where = f"{line}{self._where}"
        if records is not None and len(records):
            place = f"record {self._read + first + 1:,}"
            if len(records) > 1:
                place = f"records {self._read + first + 1:,} to {self._read + first + len(records):,}"
            where = f"{where}, {place} of its input"
            if self._step.key in records.column_names:
                where = f"{where}, first key {records[self._step.key][0].as_py()!r}"
        return Refused.of(Kind.FUNCTION, what, where, self._then, step=self._step.name, function=self._step.function)


def returned_strange_key(step: Step, key: object) -> str:
    """The sentence on a function without `key=` that returned a key which its input does not have."""
    what = f"the function {step.function} returned the key {key!r}, which is not in its input"
    return f"{what}; the step declares that keys stay as they are: name key= if they change"


def returned_no_text(step: Step, column: str) -> str:
    """The sentence on a function whose result has text that is not UTF-8."""
    return f"the function {step.function} returned text in column {column!r} that is not UTF-8"


def wrong_types(step: Step, error: Exception) -> str:
    """The sentence on a function whose result cannot be cast to the declared types."""
    return f"the result of {step.function} does not have the declared types: {error}"


def _strange(made: pa.ChunkedArray, given: pa.ChunkedArray) -> list[Any]:
    """The first made key that is not a given one, if there is one."""
    values = one_of_equals(given.cast(made.type).combine_chunks())
    known = pc.is_in(one_of_equals(made), value_set=values)
    return made.filter(pc.invert(known)).slice(0, 1).to_pylist()  # type: ignore[no-any-return]
