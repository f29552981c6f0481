"""Relations: the names in the SQL of one order, the rows read from them, and the errors of doing so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from partitioning.authoring.change_sql import NEVER_CAME
from partitioning.commands import BackfillAsking, Repeat, Replan, Then, backfill_of
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.order import Order
from partitioning.model.private import MASK
from partitioning.model.receipt import Shortage
from partitioning.model.streams import Column
from partitioning.model.task_engine import TaskMemory
from spark_jobs.engine.arrays import together
from spark_jobs.engine.intake import Intake
from spark_jobs.sql.expressions import objects, parsed

# DuckDB's own size of a row group, and how many of its rows are asked for at once: nobody knows how wide they are.
RESULT_ROWS, _ASKED_ROWS = 122_880, 8192
# Into so many parts keys are cut that do not fit into memory, and each part again.
_PARTS = 8


class Relations:
    """The relations of one order in a database. An error of one of the `intakes` is raised as it was."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        order: Order,
        memory: TaskMemory,
        intakes: Sequence[Intake] = (),
    ) -> None:
        self._memory = memory
        self.connection = connection
        self._order = order
        self._intakes = intakes
        self._parts = dict[str, int]()

    @property
    def shortage(self) -> Shortage | None:
        """What memory was too small for, if it was, up to now."""
        if not self._memory.short and not self._parts:
            return None
        return Shortage(self._memory.bytes, tuple(sorted(self._parts.items())))

    def rows(self, step: str, columns: Sequence[Column], where: str) -> pa.RecordBatchReader:
        """These columns of a stream or step. Read the rows before asking for others."""
        listed = ", ".join(quote(column.name) for column in columns)
        return self.query(f"SELECT {listed} FROM {quote(step)}", where)

    def query(self, sql: str, where: str) -> pa.RecordBatchReader:
        """The rows of a query. Read them before asking for others."""
        with self.errors(where):
            rows = self.connection.sql(sql).to_arrow_reader(self._memory.rows(_ASKED_ROWS))
        some = together(self._batches(rows, where), self._memory.rows(RESULT_ROWS), self._memory.part)
        return pa.RecordBatchReader.from_batches(rows.schema, map(pa.concat_batches, some))

    def create(self, name: str, sql: str, where: str) -> None:
        """Store the rows of a query under a name."""
        with self.errors(where):
            self.connection.execute(f"CREATE TEMP TABLE {quote(name)} AS {sql}")

    def create_by_keys(self, name: str, sql: str, keys: Mapping[str, str], where: str) -> None:
        """Store the rows of a query of stored relations, each with its key column: what is made of a key is made of its
        rows alone. If memory is too small for all keys, those of some are done after the others."""
        with self.errors(where):
            try:
                self.connection.execute(f"CREATE TEMP TABLE {quote(name)} AS {sql}")
            except duckdb.Error as error:
                if not _may_go_on(error) or not self._may_be_cut(sql, keys):
                    raise
                self._create_in_parts(name, sql, keys, where)

    def _may_be_cut(self, sql: str, keys: Mapping[str, str]) -> bool:
        """Whether a query reads only what has keys: what is not cut would be read as a whole with each part."""
        return bool(keys) and all(keys.values()) and self._read_by(sql) <= keys.keys()

    def _create_in_parts(self, name: str, sql: str, keys: Mapping[str, str], where: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {quote(name)} AS FROM ({sql}) LIMIT 0")
        self._insert_by_keys(name, sql, keys, {relation: relation for relation in keys}, 1, where)

    def _read_by(self, sql: str) -> set[str]:
        """The stored relations that a query names."""
        tree = parsed(self.connection, sql)
        assert not tree["error"], sql
        found = list(objects(tree))
        made = {cte["key"] for each in found for cte in each.get("cte_map", {"map": ()})["map"]}
        return {each["table_name"] for each in found if each.get("type") == "BASE_TABLE"} - made

    def _insert_by_keys(
        self, name: str, sql: str, keys: Mapping[str, str], rows: Mapping[str, str], cut: int, where: str
    ) -> None:
        """Do so for parts of the keys of these `rows`, which were `cut` into so many, one after the other."""
        # No stream or step can have a name with `@`.
        parts = {relation: f"{relation}@part-{cut}" for relation in keys}
        known = name.partition("@")[0]
        self._parts[known] = max(self._parts.get(known, 0), cut * _PARTS)
        named = ", ".join(f"{quote(each)} AS NOT MATERIALIZED (FROM temp.{quote(parts[each])})" for each in keys)
        for number in range(_PARTS):
            for each, key in keys.items():
                mine = f"FROM temp.{quote(rows[each])} WHERE hash({quote(key)}::VARCHAR) // {cut} % {_PARTS} = {number}"
                self.connection.execute(f"CREATE TEMP TABLE {quote(parts[each])} AS {mine}")
            try:
                self.connection.execute(f"INSERT INTO temp.{quote(name)} WITH {named} FROM ({sql})")
            except duckdb.Error as error:
                if not _may_go_on(error):
                    raise
                self._refuse_one_key(keys, parts, where, error)
                self._insert_by_keys(name, sql, keys, parts, cut * _PARTS, where)
            for part in parts.values():
                self.drop(part)

    def _refuse_one_key(
        self, keys: Mapping[str, str], rows: Mapping[str, str], where: str, error: duckdb.Error
    ) -> None:
        """Raise the error if these rows are of one key, as none of them can be done alone, or of none. If the key is
        large, that says it by its name."""
        each = (
            f"SELECT {quote(key)}::VARCHAR AS key, strlen(own::VARCHAR) AS size FROM temp.{quote(rows[one])} AS own"
            for one, key in keys.items()
        )
        found = (
            f"SELECT min(key), max(key), count(*) - count(key), count(*), sum(size) FROM ({' UNION ALL '.join(each)})"
        )
        key, last, nulls, count, size = self.connection.execute(found).fetchall()[0]
        if key != last or 0 < nulls < count:
            return
        has = self._memory.bytes
        if not count or 16 * size < has:
            raise error
        shown = MASK if self._order.private else key or "NULL"
        what = f"the key {shown!r} has {count:,} rows of {size:,} bytes, and a task may hold {has:,}"
        more = max(2 * has, has + 16 * size) // 1_000_000
        needs = f"give tasks more memory, at first `--memory {more}MB`, or leave out columns that are wide, then "
        raise Refused.of(Kind.MEMORY, what, f"{where}, {self._order}", (needs, Repeat()), key=shown) from error

    def drop(self, name: str) -> None:
        """Forget what was stored under a name."""
        self.connection.execute(f"DROP TABLE {quote(name)}")

    def relate(self, name: str, rows: pa.Table, columns: Sequence[Column], where: str) -> None:
        """Give the rows of a function's result a name in SQL."""
        raw = f"{name}@made"
        self.connection.register(raw, rows)
        with self.errors(where):
            listed = cast((column.name, column.type) for column in columns)
            self.connection.execute(f"CREATE TEMP VIEW {quote(name)} AS SELECT {listed} FROM {quote(raw)}")

    @contextmanager
    def errors(self, where: str) -> Iterator[None]:
        """Raise the error of an intake as it was, and turn an error of DuckDB into a refusal."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for intake in self._intakes:
                if intake.error is not None:
                    raise intake.error from None
            kind = Kind.SQL
            then: Then = ("correct the expression or the data, then ", Replan(self._order.pipeline))
            if NEVER_CAME in str(error):
                kind, pipeline = Kind.STATE_CHANGED, self._order.pipeline
                original, _ = backfill_of(pipeline) or (pipeline, 0)
                anew = "what the step kept was made by other steps: make it anew by a backfill of all batches: "
                then = (anew, BackfillAsking(original, 0, cascade=True))
            if _lacks_memory(error):
                kind, then = Kind.MEMORY, ("give the task more memory with --memory, and ", Repeat())
            what = f"SQL failed: {' '.join(str(error).split())}"
            raise Refused.of(kind, what, f"{where}, {self._order}", then, step=where) from error

    def _batches(self, rows: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self.errors(where):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch


def _lacks_memory(error: Exception) -> bool:
    """Whether memory was too small.

    >>> _lacks_memory(duckdb.Error("Failed to commit: Checkpoint failed: failed to allocate data of size 3.0 MiB"))
    True
    """
    # What fails while rows are read is an error of Arrow, and while they are stored one of the transaction.
    return bool(re.search(r"Out of Memory Error|Failed to commit: .* (?:block|data) of size", str(error)))


def _may_go_on(error: Exception) -> bool:
    """Whether memory was too small, and the database can still be asked."""
    return _lacks_memory(error) and "has been invalidated" not in str(error)


def cast(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT list that casts each column to its DuckDB type."""
    return ", ".join(f"CAST({quote(name)} AS {kind}) AS {quote(name)}" for name, kind in columns)
