"""Python steps: a function of a deployment's own, called on the records of one task as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.arrow_schema import arrow_schema
from partitioning.commands import Repeat
from partitioning.errors import Finding, Refused, about
from partitioning.imports import failed, imported
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.order import Order
from spark_jobs.engine.hashing import one_of_equals

Function = Callable[..., Any]


class FunctionStep:
    """A Python step in one task.

    Its function is given the records in their order, some at a time, so that memory is bounded, and is not called if
    there are none. One that runs in a single task is given all records at once, also if there are none.
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
        """What the function makes of the rows; it lies in a new file, and is read from there as it is asked for.

        Raises Refused if the function fails, or gives something else than it was declared to.
        """
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            for given in self._tables(rows):
                writer.write_table(self._as_declared(given, self._called(given)))
                self._read += len(given)
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    def apply_keeping(self, rows: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
        """What the function makes of the rows and of what it kept of their keys, and what it keeps of these now.

        It is not called if there are no rows. Raises Refused as `apply` does, and if it keeps something of other keys.
        """
        assert self._step.state
        schema = arrow_schema(self._step.state.columns)
        if not len(rows):
            return self._schema.empty_table(), schema.empty_table()
        made = self._called(rows, kept)
        if not isinstance(made, tuple) or len(made) != 2:
            what = f"the function {self._step.function} gave no pair of tables, rows and what it keeps"
            raise self._refused(f"{what}, but {type(made).__name__}")
        table, keeps = self._as_declared(rows, made[0]), self._typed(made[1], schema)
        key = self._step.state.placement.key if self._step.state.placement else ""
        for strange in _strange(keeps[key], rows[key]):
            what = f"the function {self._step.function} keeps something of the key {strange!r}"
            raise self._refused(f"{what}, which is none that it was given")
        return table, keeps

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
            raise self._refused(what, first, records) from error
        finally:
            # What comes after it in this process needs the store's address, too.
            if os.environ != before:
                os.environ.clear()
                os.environ.update(before)

    def _least(self, given: pa.Table) -> tuple[int, pa.Table]:
        """The first records on which the function fails by themselves, as few as halving finds, and where they are."""
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
        """What the function made, in the columns and types that it was declared to give."""
        table = self._typed(made, self._schema)
        key = self._step.key
        if key and not self._step.rekeys:
            for strange in _strange(table[key], given[key]):
                raise self._refused(gave_strange_key(self._step, strange, "it"))
        return table

    def _typed(self, made: Any, schema: pa.Schema) -> pa.Table:
        if not isinstance(made, pa.Table):
            raise self._refused(f"the function {self._step.function} gave no pyarrow.Table but {type(made).__name__}")
        if missing := [name for name in schema.names if name not in made.column_names]:
            listed = ", ".join(made.column_names) or "none"
            raise self._refused(f"there is no column {', '.join(missing)} in what {self._step.function} gave: {listed}")
        try:
            return made.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._refused(f"what {self._step.function} gave is not of the declared types: {error}") from error

    def _refused(self, what: str, first: int = 0, records: pa.Table | None = None) -> Refused:
        where = self._where
        if records is not None and len(records):
            place = f"record {self._read + first + 1:,}"
            if len(records) > 1:
                place = f"records {self._read + first + 1:,} to {self._read + first + len(records):,}"
            where = f"{where}, {place} of those it was given"
            if self._step.key in records.column_names:
                where = f"{where}, first key {records[self._step.key][0].as_py()!r}"
        return Refused(
            Finding(Kind.FUNCTION, what, where, self._then, about(step=self._step.name, function=self._step.function))
        )


def gave_strange_key(step: Step, key: object, whose: str) -> str:
    """What is wrong with a function that leaves keys as they are, and gave another: `whose` keys it is held against."""
    what = f"the function {step.function} gave the key {key!r}, which is none that {whose} was given"
    return f"{what}; it was declared to leave keys as they are: name key= if it does not"


def _strange(made: pa.ChunkedArray, given: pa.ChunkedArray) -> list[Any]:
    """The first key that was made and not given, if there is one."""
    values = one_of_equals(given.cast(made.type).combine_chunks())
    known = pc.is_in(one_of_equals(made), value_set=values)
    return made.filter(pc.invert(known)).slice(0, 1).to_pylist()  # type: ignore[no-any-return]
