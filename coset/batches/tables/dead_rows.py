"""Dead rows: finds the rows of an upserted table beside which a batch writes new ones, by their keys.

The table itself says where a key's row lies, as its log has it when the batch is published: whoever moves rows
meanwhile, by compaction for instance, changes nothing.

Proof of dead rows: those that a batch would make dead are held against the files themselves, and what a version would
note of them against the table before it. Both are done before anything is stored: nobody could tell later that a row
was called dead for no reason.
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
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact, Role
from partitioning.sections import many
from spark_jobs.engine.arrays import mask, numbers
from spark_jobs.engine.task_database import connect
from spark_jobs.tables.table_schema import key_schema


def dying(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[DeadRows]:
    """The rows that a batch, which left these files, replaces in a table or takes away, by file.

    Raises Refused if other rows would die than those of its keys, and Coset's errors if a file cannot be read.
    """
    # No two runs of a task write files of one name. Receipts have them in another order than verdicts.
    return log.once(frozenset(file.path for file in files), lambda: _proved(log, store, write, files))


def count_dying(rows: Iterable[DeadRows]) -> Counter[int]:
    """How many rows of each partition die."""
    count = Counter[int]()
    for each in rows:
        count[each.file.partition] += len(each.rows)
    return count


def without_keys(
    rows: pa.RecordBatchReader,
    store: Store,
    write: PlannedWrite,
    files: Sequence[Artefact],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows of a table that a batch, which left these files, neither replaces nor takes away."""
    with connect() as connection:
        keys, _ = _touched(store, write, files)
        connection.register("keys", keys)
        connection.register("there", rows)
        listed = ", ".join(f"there.{quote(name)}" for name in columns)
        asked = f"SELECT {listed} FROM there ANTI JOIN keys ON {met(key_schema(write))}"
        yield from connection.sql(asked).to_arrow_reader()


def _proved(log: TableLog, store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> list[DeadRows]:
    beside = {part.partition for file in files for part in file.parts if write.is_beside(part.partition)}
    if not beside:
        return []
    touched, replaced = _touched(store, write, files)
    read = FileKeys(log, key_schema(write))
    # Each file is proved before the next is read.
    return proved(log, read, _dying(log, read, beside, touched), touched, replaced)


def _dying(log: TableLog, read: FileKeys, beside: Collection[int], keys: pa.Table) -> Iterator[DeadRows]:
    place, contents = store_at(log.table_uri), dict[str, bytes | None]()
    for file in live_files(log):
        if file.partition not in beside:
            continue
        before = deletion_vectors.dead(place, file.vector, contents)
        found, of = _having(read, file, keys)
        rows = found.filter(mask(~np.isin(found[ROW].to_numpy(), before.to_array())))
        if len(rows):
            yield DeadRows(file, rows, before | BitMap64(rows[ROW].to_numpy()), of)


def _touched(store: Store, write: PlannedWrite, files: Sequence[Artefact]) -> tuple[pa.Table, pa.Table]:
    """The keys of the rows that a batch replaces or takes away, or writes beside others; and those of the first two."""
    replaced = _keys_of(store, write, (file for file in files if file.role is Role.REPLACED))
    beside = (file for file in files if any(write.is_beside(part.partition) for part in file.parts))
    return pa.concat_tables([replaced, _keys_of(store, write, beside)]), replaced


def _keys_of(store: Store, write: PlannedWrite, files: Iterable[Artefact]) -> pa.Table:
    schema = key_schema(write)
    return pa.concat_tables([schema.empty_table(), *(_keys(store.uri(file.path), schema) for file in files)])


def _keys(uri: str, schema: pa.Schema) -> pa.Table:
    with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
        return pq.read_table(source, columns=schema.names).select(schema.names).cast(schema)


def _having(read: FileKeys, file: LiveFile, keys: pa.Table) -> tuple[pa.Table, int]:
    """The rows of a file that have one of the keys: the columns of the key, and their numbers. And how many it has."""
    placed = keys.schema.append(pa.field(ROW, pa.int64()))
    near, first = [placed.empty_table()], 0
    for there in read.of(file):
        pairs = zip(there.columns, keys.columns, strict=True)
        known = [np.asarray(pc.is_in(column, value_set=values).to_numpy()) for column, values in pairs]
        (rows,) = np.nonzero(np.logical_and.reduce(known))
        near.append(there.take(numbers(rows)).append_column(placed.field(ROW), numbers(rows + first)))
        first += len(there)
    found = pa.concat_tables(near)
    if keys.num_columns == 1 or not len(found):
        return found, first
    # A row may have each value of a key of several columns, and yet be of another key.
    with connect() as connection:
        connection.register("keys", keys)
        connection.register("there", found)
        both = connection.sql(f"FROM there SEMI JOIN keys ON {met(keys.schema)}").to_arrow_table()
    return both.cast(placed), first


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
