"""Proof of dead rows: those that a batch would make dead are held against the files themselves, and what a version
would note of them against the table before it.

Both are done before anything is stored: nobody could tell later that a row was called dead for no reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from coset.batches.tables import deletion_vectors
from coset.batches.tables.deletion_vectors import WRITTEN_AGAIN
from coset.batches.tables.live_files import VECTORS, LiveFile, has_vectors, identity, live_files
from coset.batches.tables.log_copy import Action, TableLog
from coset.batches.tables.logs import opened_whole
from coset.batches.tables.table_reader import live_rows
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Then
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.sections import many
from spark_jobs.engine.arrays import numbers
from spark_jobs.engine.task_database import connect

# So many bytes of keys are held until the next file is read. A file with more is read each time.
_HELD = 64 << 20


class FileKeys:
    """The columns `schema` of the files of a table. Those of the file that was read last are held."""

    def __init__(self, log: TableLog, schema: pa.Schema) -> None:
        self.schema = schema
        self._folder = log.table_uri.rstrip("/")
        self._held: tuple[str, list[pa.Table]] = "", []

    def uri(self, file: LiveFile) -> str:
        return f"{self._folder}/{file.path}"

    def of(self, file: LiveFile) -> Iterator[pa.Table]:
        """The keys of the rows, dead ones too, of each row group. Raises Coset's errors if the file cannot be read."""
        path, held = self._held
        if path == file.path:
            yield from held
            return
        held, size = [], 0
        with reaching("the file cannot be read", self.uri(file), AGAIN), Files().open(self.uri(file)) as source:
            opened = pq.ParquetFile(source)
            for group in range(opened.num_row_groups):
                # Others may have written views of text, of which PyArrow takes none.
                keys = opened.read_row_group(group, self.schema.names).select(self.schema.names).cast(self.schema)
                size += keys.nbytes
                held = [*held, keys] if size <= _HELD else []
                yield keys
        if size <= _HELD:
            self._held = file.path, held


# The number of a row in its file.
ROW = "@row"
_FILE = "@file"


@dataclass(frozen=True, slots=True)
class DeadRows:
    """The rows of a file that a batch makes dead, with their keys, and `all` that are dead in it then, `of` so many
    rows."""

    file: LiveFile
    rows: pa.Table
    all: BitMap64
    of: int


def proved(
    log: TableLog, read: FileKeys, found: Iterable[DeadRows], touched: pa.Table, replaced: pa.Table
) -> list[DeadRows]:
    """The rows that were `found` to be dead. Raises Refused unless they are of keys that a batch has `touched`, and no
    row of a key that it has `replaced` would go on living.

    The keys at these rows are looked up by the numbers of the rows alone. Raises Coset's errors if a file cannot be
    read.
    """
    place, contents = store_at(log.table_uri), dict[str, bytes | None]()
    dead, died = list[DeadRows](), [read.schema.append(pa.field(_FILE, pa.int64())).empty_table()]
    for number, each in enumerate(found):
        before = deletion_vectors.dead(place, each.file.vector, contents)
        new, uri = each.all - before, read.uri(each.file)
        if not before <= each.all or len(new) != len(each.rows):
            raise _wrong(uri, "rows of a file would be dead twice, or live again", WRITTEN_AGAIN)
        keys, count = _keys_at(read, each.file, np.asarray(new.to_array(), np.int64))
        if count != each.of or each.all.max() >= each.of:
            raise _wrong(uri, "rows would be dead that the file does not have", WRITTEN_AGAIN)
        died.append(keys.append_column(died[0].schema.field(_FILE), pa.repeat(number, len(keys))))
        dead.append(each)
    gone = pa.concat_tables(died)
    if strangers := _without(gone, touched):
        first = pc.min(strangers[_FILE])
        count = pc.sum(pc.equal(strangers[_FILE], first)).as_py()
        what = f"{many(count, 'row')} of keys that did not come would be dead"
        raise _wrong(read.uri(dead[first.as_py()].file), what, WRITTEN_AGAIN)
    if stayed := _without(replaced, gone.select(replaced.column_names)):
        # Somebody may have deleted them.
        with opened_whole(log.table_uri) as table:
            living = len(_asked("SEMI", live_rows(table, replaced.column_names), stayed)) if table is not None else 0
        if living:
            what = f"{many(living, 'row')} of keys that came would live beside new rows"
            raise _wrong(log.table_uri, what, WRITTEN_AGAIN)
    return dead


def check_noted(
    log: TableLog,
    actions: Sequence[Action],
    dead: Sequence[DeadRows],
    again: Sequence[LiveFile],
    whole: Collection[int],
    new: Mapping[str, bytes],
) -> None:
    """Hold the actions of a table's next version against it. Raises Refused unless they say that these rows are `dead`.

    Beside those, files may come `again`, those of `whole` partitions may go, and others may come. `new` vectors are not
    stored yet.
    """
    come = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    wrongs = chain(
        _wrong_files(log, actions, dead, again, whole),
        _wrong_rows(log, come, dead, again, dict(new)),
        _wrong_demands(log, actions),
    )
    for path, what in wrongs:
        raise _wrong(f"{log.table_uri.rstrip('/')}/{path}", what, AGAIN)


def _wrong_files(
    log: TableLog,
    actions: Sequence[Action],
    dead: Sequence[DeadRows],
    again: Sequence[LiveFile],
    whole: Collection[int],
) -> Iterator[tuple[str, str]]:
    """What is wrong with the files that go and come, each with the file."""
    there = {identity(file.added): file for file in live_files(log)}
    gone = Counter(identity(action["remove"]) for action in actions if "remove" in action)
    have = Counter(action["add"]["path"] for action in actions if "add" in action)
    have.update(path for path, *_ in there.keys() - gone.keys())
    for file, times in gone.items():
        if file not in there or times > 1:
            yield file[0], "a file would be taken out that the table does not have"
    for path, times in have.items():
        if times > 1:
            yield path, "a file would be in the table twice"
    loses = {identity(each.file.added): each for each in dead}
    for file in gone.keys() - loses.keys():
        if not again and there[file].partition not in whole:
            yield file[0], "a file would be taken out whose rows live"
    for file, each in loses.items():
        if file not in gone or (file[0] in have) != (len(each.all) < each.of):
            yield file[0], "a file would not be there with its rows that live"


def _wrong_rows(
    log: TableLog,
    come: Mapping[str, Mapping[str, Any]],
    dead: Sequence[DeadRows],
    again: Sequence[LiveFile],
    contents: dict[str, bytes | None],
) -> Iterator[tuple[str, str]]:
    """What is wrong with the dead rows of files that come, each with the file."""
    place, lives = store_at(log.table_uri), {identity(file.added) for file in again}
    loses = {each.file.added["path"]: each for each in dead}
    for path, added in come.items():
        rows = deletion_vectors.dead(place, added.get("deletionVector"), contents)
        if path not in loses:
            if rows and identity(added) not in lives:
                yield path, "a file would come with dead rows"
        elif (
            rows != loses[path].all
            or any(added[name] != loses[path].file.added[name] for name in ("partitionValues", "size"))
            or json.loads(added["stats"])["numRecords"] != loses[path].of
        ):
            yield path, "a file would have other dead rows than were found"


def _wrong_demands(log: TableLog, actions: Sequence[Action]) -> Iterator[tuple[str, str]]:
    """What is wrong with what readers have to know."""
    asked = next((set(action["protocol"]["readerFeatures"]) for action in actions if "protocol" in action), None)
    knows = has_vectors(log) if asked is None else VECTORS in asked
    if not knows and any("deletionVector" in action["add"] for action in actions if "add" in action):
        yield "", "readers would not be asked to know which rows are dead"


def met(schema: pa.Schema) -> str:
    """The condition in SQL that `there` and `keys` have one key."""
    return " AND ".join(f"there.{quote(name)} IS NOT DISTINCT FROM keys.{quote(name)}" for name in schema.names)


def _keys_at(read: FileKeys, file: LiveFile, rows: np.ndarray) -> tuple[pa.Table, int]:
    """The keys of rows of a file by their numbers, which are counted from each of its row groups on. And how many rows
    it has."""
    taken, first = [read.schema.empty_table()], 0
    for keys in read.of(file):
        here = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(keys))] - first
        taken.append(keys.take(numbers(here)))
        first += len(keys)
    return pa.concat_tables(taken), first


def _without(some: pa.Table, others: pa.Table) -> pa.Table:
    return _asked("ANTI", some, others)


def _asked(join: str, some: pa.Table | pa.RecordBatchReader, others: pa.Table) -> pa.Table:
    """The keys of some that are among others, or that are not."""
    with connect() as connection:
        connection.register("there", some)
        connection.register("keys", others)
        asked = f"SELECT there.* FROM there {join} JOIN keys ON {met(others.schema)}"
        return connection.sql(asked).to_arrow_table()


def _wrong(where: str, what: str, then: Then) -> Refused:
    return Refused.of(Kind.PROOF, f"{what}; nothing was published", where, then, file=where, wrong=what)
