"""Streams: what a user declares, and what discovery found in the source. Ids of their columns in an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import field

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.allowance import SetAside
from partitioning.model.offsets import Span
from partitioning.model.placement import MURMUR2, HashName, KeyFormat
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource, Source, named_file, source_of
from partitioning.model.watermarks import EventTime
from partitioning.values import Value, always

# Before the name of a part: columns may have dots in their names.
PART = "\x1f"


def renamed(then: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, str]:
    r"""The columns and parts of now that had another name then, with that name: empty if they are new, and another had
    theirs.

    >>> renamed({"a": 1, "b": 2, "of": 3, "of\x1fx": 4}, {"a": 5, "c": 2, "to": 3, "to\x1fx": 4, "more": 6})
    {'a': '', 'c': 'b', 'to': 'of'}
    """
    names, found = {number: name for name, number in then.items()}, dict[str, str]()
    for name, number in now.items():
        (column, _, part), was = name.partition(PART), names.get(number, "")
        # The parts of a column have moved with it.
        if (was != name if was else name in then) and not (part and column in found and part == was.partition(PART)[2]):
            found[name] = was
    return found


class NullKeys(StrEnum):
    """What happens to a stream's records without a key: the batch is refused, they are dropped and counted, or they get
    a task of their own."""

    REFUSE = "refuse"
    DROP = "drop"
    OWN_TASK = "own task"


class Format(StrEnum):
    """How records are written: Parquet and Avro files describe their columns, JSON lines do not. In a broker, each
    record is JSON, Avro, or bytes. The `noun` is its name in sentences."""

    noun: str

    def __new__(cls, word: str, noun: str = "") -> Format:
        """A word with its noun."""
        form = str.__new__(cls, word)
        form._value_ = word
        form.noun = noun
        return form

    PARQUET = "parquet", "Parquet"
    AVRO = "avro", "Avro"
    JSON = "json", "JSON"
    BYTES = "bytes", "bytes"

    @property
    def has_types(self) -> bool:
        """Whether it says itself of which types columns are."""
        return self is not Format.JSON

    @property
    def lands(self) -> bool:
        """Whether landed files may be written so."""
        return self is not Format.BYTES

    @property
    def by_duckdb(self) -> bool:
        """Whether DuckDB alone reads landed files of it, so that Coset lands rows so too."""
        return self in {Format.PARQUET, Format.JSON}


USUAL_FORMAT = Format.PARQUET


class ChangeForm(StrEnum):
    """How Debezium's records say what changed in a table: in an envelope with the rows before and after, or unwrapped
    by its ExtractNewRecordState, as a row that says whether it is deleted."""

    ENVELOPE = "envelope"
    UNWRAPPED = "unwrapped"


class Layout(StrEnum):
    """How a stream's files are sorted into folders: one for each partition, any folders of times, or none, by the
    names that Aiven's sinks give files by default."""

    PARTITION = "partition"
    TIME = "time"
    AIVEN = "aiven"


class Sparse(Value, frozen=True, omit_defaults=True):
    """Offsets may be missing. A file's footer explains those within the file; up to `gap` may be missing between two
    files.

    With `usual`, only gaps that markers and compaction leave are allowed. Otherwise any cause is, with a warning.

    >>> print(Sparse(500), Sparse(100, usual=True))
    sparse(500) sparse
    """

    gap: int
    usual: bool = False

    def __str__(self) -> str:
        return "sparse" if self.usual else f"sparse({self.gap})"


DENSE, SPARSE = "dense", "sparse"
# The column of offsets, unless another is named.
OFFSET = "_offset"
# More than compaction usually leaves where a file ends.
USUAL_GAP = 100
# For a stream read from its broker: the broker explains all gaps, except before the log's start.
BY_THE_BROKER = Sparse(0)
# The column that says whether a record deletes its row: of Debezium's, and of Iceberg tables' that are read as tables.
DELETED = "_deleted"
# The column with the timestamps of records read from a broker.
TIMESTAMP = "_timestamp"
_SPARSE = re.compile(r"sparse(\((?P<gap>0|[1-9][0-9]{0,17})\))?")


def sparseness(offsets: str, where: str) -> Sparse | None:
    """How a stream declares missing offsets. Raises Refused for an unknown word.

    >>> print(sparseness("sparse", "views"), sparseness("sparse(500)", "views"), sparseness("dense", "views"))
    sparse sparse(500) None
    """
    if offsets == DENSE:
        return None
    match = _SPARSE.fullmatch(offsets)
    if match is None:
        then = 'use "dense", or "sparse(N)" if up to N may be missing between two files'
        raise Refused.of(Kind.DECLARATION, f"unknown offsets {offsets!r}", where, then, offsets=offsets)
    return Sparse(int(match["gap"])) if match["gap"] else Sparse(USUAL_GAP, usual=True)


class Stream(Value, frozen=True, omit_defaults=True):
    """A named input: a Kafka topic, landed in files as Kafka Connect's S3 sink does, or in its broker.

    `source` is the URI of the topics folder or of the brokers. A `table` is read whole by each batch, and only the
    latest record of each key counts (Kafka Streams: KTable). If it is `kept`, its state continues and a batch reads
    what is new. `offset` names the column with each record's Kafka offset. `hash` is the rule by which producers place
    keys: a name, the import path of a function, or `opaque` if unknown. A `sparse` stream lacks offsets.
    Columns in `cast` are read with these types. `format` is how records are written (Parquet by default). `columns`
    declares columns and types where the format does not have them, `schema` the Avro schema where no registry has it.
    `layout` says how files are sorted into folders. If offsets are `counted`, the file's name has the first offset, and
    the others follow. Values of `private` columns are shown to nobody. With `bad_records`, those that cannot be used
    are set aside. `time` says when its records happened. If they are `changes` of a table by Debezium, `columns` are
    those of its rows, and DELETED. Where files have keys as bytes, the columns of `key` are read from `key_bytes`.
    If keys lie in files beside those of values, `keys` is how these are written.
    Plans omit what has its default, but for the first fields.
    """

    name: str
    source: str
    key: str
    partitions: int
    key_format: KeyFormat = always(KeyFormat.STRING)
    offset: str = always(OFFSET)
    null_keys: NullKeys = always(NullKeys.REFUSE)
    hash: HashName = always(MURMUR2)
    table: bool = always(False)
    sparse: Sparse | None = None
    cast: Mapping[str, str] = field(default_factory=dict)
    format: Format = USUAL_FORMAT
    columns: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    layout: Layout = Layout.PARTITION
    counted: bool = False
    kept: bool = False
    private: tuple[str, ...] = ()
    bad_records: SetAside | None = None
    time: EventTime | None = None
    changes: ChangeForm | None = None
    key_bytes: str = ""
    keys: Format | None = None

    @property
    def origin(self) -> Source:
        """Where its records come from."""
        return source_of(self.source)

    @property
    def may_lack_offsets(self) -> bool:
        """Whether offsets may have no record, so that only readers know which have one."""
        return self.sparse is not None

    @property
    def counted_by_plan(self) -> bool:
        """Whether the plan knows how many records a range has. For a broker, only the reader finds out."""
        match self.origin:
            case LandedSource() | IcebergSource():
                return True
            case KafkaSource():
                return False

    @property
    def tells_deletes(self) -> bool:
        """Whether its records say, in the column DELETED, that their row is gone."""
        return bool(self.changes) or (self.table and isinstance(self.origin, IcebergSource))

    @property
    def sets_aside(self) -> bool:
        """Whether its records that cannot be used are set aside, and do not stop a batch."""
        return self.bad_records is not None

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        if not self.table:
            return "stream"
        return "table, kept" if self.kept else "table, read whole"


class Column(Value, frozen=True, order=True, gc=False):
    """A column and its DuckDB type."""

    name: str
    type: str


class InputFile(Value, frozen=True, order=True, gc=False, omit_defaults=True):
    """A landed file as the plan pins it. `start` is the first offset, from its name, `end` the last + 1. `missing`
    offsets between them are not in the file, by the number of records in its footer. If an earlier file ends behind the
    offset in the name, this one counts from there on, and that is `start`.

    If keys lie in a file of their own, `keys` is its path, `keys_size` and `keys_etag` pin it.

    Of an Iceberg table, offsets count rows, in a row the snapshots that brought them, and those of a file from `start`
    on. `snapshot` is the one in which planning found the file. `rows` says which of its rows count, if not all, by how
    many are left out and taken, by turns: `3,1,0` and so on. They are new there, or `gone`.

    In a broker, it is a range of a partition: `path` is the partition, `etag` the topic's id, `size` an estimate. The
    number of records is unknown before they are read.
    """

    path: str
    size: int
    etag: str
    start: int
    end: int
    missing: int = 0
    keys: str = ""
    keys_size: int = 0
    keys_etag: str = ""
    snapshot: int = 0
    rows: str = ""
    gone: bool = False

    @property
    def beside(self) -> InputFile | None:
        """The file with the keys of its records, if there is one."""
        return InputFile(self.keys, self.keys_size, self.keys_etag, self.start, self.end) if self.keys else None

    @property
    def content(self) -> tuple[str, int, str]:
        """What stays the same if a file is moved unchanged."""
        return self.path.rpartition("/")[2], self.size, self.etag

    @property
    def records(self) -> int:
        """How many it holds."""
        return self.end - self.start - self.missing

    @property
    def first(self) -> int:
        """The offset of its first record, also if that is another file's."""
        said = None if self.snapshot else named_file(self.path)
        return int(said["start"]) if said else self.start

    def held(self, start: int, end: int) -> int:
        """How many records it holds in the offsets [start, end). An estimate if the file has gaps and is cut."""
        common = max(0, min(self.end, end) - max(self.start, start))
        return common if not self.missing else self.records * common // (self.end - self.start)

    def share(self, start: int, end: int) -> int:
        """How many of its bytes the offsets [start, end) take, if all records have one size."""
        if self.start == self.end:
            return 0
        return self.size * (min(self.end, end) - max(self.start, start)) // (self.end - self.start)


class DiscoveredPartition(Value, frozen=True):
    """What a stream partition holds now: its files by offset, pinned by etag.

    `read` is what earlier batches read, which is not looked at again and may be gone. `landed` is when the
    first file with unpublished records landed. `epoch` goes into the plan; of an Iceberg table it is the snapshot at
    which the files end. `doubles` are parts of files whose offsets
    others hold, with the same records: they do not count.
    """

    partition: int
    files: tuple[InputFile, ...] = ()
    read: Span | None = None
    landed: datetime | None = None
    epoch: int = -1
    doubles: tuple[InputFile, ...] = ()

    @property
    def beginning(self) -> int:
        """The log start offset; 0 if nothing has arrived."""
        if self.read is not None:
            return self.read.start
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The log end offset: the next to arrive, 0 if nothing has."""
        if self.files:
            return self.files[-1].end
        return self.read.end if self.read is not None else 0


class Looked(Value, frozen=True):
    """What was looked at of a stream's files beside those with records: how many were opened and have none, how many
    were not because of their names, and whether others lie beside the folders of its partitions."""

    empty: int = 0
    hidden: int = 0
    beside: bool = False


class Discovered(Value, frozen=True):
    """What was found of a stream: its columns and every declared partition, by number.

    Some files lack the columns in `lacking`, which read as null. No file allows nulls in `required` ones. Those that
    are `untyped` are null in all records so far; as nothing says their types, they are none of `columns`. `topic` is
    the topic's id, if found in a broker; of an Iceberg table its uuid, its snapshot and the number of that. `ids` has
    those of its columns.
    """

    stream: str
    columns: tuple[Column, ...]
    partitions: Sequence[DiscoveredPartition]
    lacking: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    topic: str = ""
    untyped: tuple[str, ...] = ()
    looked: Looked = Looked()
    ids: Mapping[str, int] = field(default_factory=dict)
