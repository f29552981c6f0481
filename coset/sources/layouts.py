"""Layouts: the folders and names of a stream's files, what to list to find them, and the tools whose files are no
files of a topic, told by their names. Listings of the objects there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coset.sources.formats.compressed import ENDINGS
from coset.sources.formats.opening import LANDED, endings
from partitioning.documents.store import Found, Store
from partitioning.model.sources import DASHED_NAME, FILE_NAME, named_file
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import Format, Layout, Stream
from partitioning.values import replace

# A request costs about as much as this many keys listed in vain.
_FEW = 100
_DIGITS = re.compile(r"\+([0-9]+)\.[^/]*$")


def listed(store: Store, stream: str, starts: Mapping[str, str]) -> Iterator[Found]:
    """The objects in all partition folders; in those that `starts` names, only those behind that key.

    A new request skips what was read. Keys listed in vain cost time too, so requests ask for few keys at first, then
    for more (up to 1,000) while they end among new keys or pass whole partitions. There are about as many requests as
    partitions, or as listing the new files takes, and each wastes fewer than `_FEW` keys.
    """
    after, keys = starts.get(folder(stream, 0), ""), _FEW
    while True:
        page = store.page(folders(stream), after, keys)
        yield from (found for found in page.objects if found.entry.key > _start(found, starts))
        if not page.more:
            return
        last = page.objects[-1]
        start = _start(last, starts)
        reaches_over = len({_folder(found) for found in page.objects}) > 2
        keys = 2 * keys if reaches_over or start <= last.entry.key else _FEW
        after = max(last.entry.key, start)


def objects_in(store: Store, stream: str, partition: int) -> Iterator[Found]:
    """All objects in the folder of one partition."""
    return listed_between(store, folder(stream, partition))


def listed_between(store: Store, prefix: str, after: str = "", last: str | None = None) -> Iterator[Found]:
    """The objects with a prefix, behind one key and up to another."""
    more = True
    while more:
        page = store.page(prefix, after)
        for found in page.objects:
            if last is not None and found.entry.key > last:
                return
            yield found
        after, more = page.objects[-1].entry.key if page.objects else "", page.more


def folders(stream: str) -> str:
    """The prefix of the keys in all folders."""
    return f"{stream}/partition="


def folder(stream: str, partition: int) -> str:
    """The prefix of the keys in a partition's folder."""
    return f"{folders(stream)}{partition}/"


def digits_of(keys: Iterable[str]) -> int:
    """To how many digits names pad offsets, as far as these keys show. 0 if they do not.

    >>> digits_of(["views/partition=0/views+0+0000001200.parquet", "views/partition=0/views+0+12000000000.parquet"])
    10
    """
    return min((len(match[1]) for key in keys if (match := _DIGITS.search(key))), default=0)


def key_before(stream: str, partition: int, offset: int, digits: int) -> str:
    """A key behind which all files of a partition are listed that begin at an offset or later.

    Names with that many digits sort by offset. Longer ones do not begin with 0, and sort among the padded ones that do
    not either.

    >>> key_before("views", 3, 1200, 10), key_before("views", 3, 2_000_000_000, 10)
    ('views/partition=3/views+3+0000001200', 'views/partition=3/views+3+1')
    """
    padded = f"{offset:0{digits}}"
    return f"{folder(stream, partition)}{stream}+{partition}+{padded if padded.startswith('0') else '1'}"


def _start(found: Found, starts: Mapping[str, str]) -> str:
    """The key after which the folder of an object is listed."""
    return starts.get(_folder(found), "")


def _folder(found: Found) -> str:
    return f"{found.entry.key.rpartition('/')[0]}/"


AIVEN = "Aiven's sink under its default template"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OTHER_SINKS = {
    "Spark's file sink": rf"part-[0-9]{{5}}-{_UUID}[-.]c[0-9]{{3}}(\.[a-z0-9]+)+",
    "Flink's FileSink": rf"part-({_UUID}|[0-9]+)(-[0-9]+)+(\.[a-z0-9]+)*",
    "Vector's aws_s3 sink": rf"[^/]+-{_UUID}\.[a-z0-9]+(\.[a-z0-9]+)?",
    "Fluent Bit's S3 output": r"[^/]+-object[A-Za-z0-9]{8}(\.[a-z0-9]+)*",
    AIVEN: r"[^/]+-[0-9]+-[0-9]+(\.(avro|csv|jsonl?|parquet))?(\.(gz|zst|snappy))?",
}
NO_CSV = (
    "set format.output.type=jsonl, avro or parquet, and land the topic anew: CSV has values in base64, without names, "
    "as docs/internals/landed-files.md#other-tools says"
)
LAND_OTHERWISE = (
    "read the topic from its broker, source='kafka://…', or land it as docs/internals/landed-files.md#other-tools says"
)
# What Confluent's sink lands of keys and headers, in files beside those of values.
_BESIDE_VALUES = re.compile(rf"{FILE_NAME}\.(keys|headers)\.[^/]*")
_BEGINNING = re.compile(rf"(.*/)?{FILE_NAME}")


@dataclass(frozen=True, slots=True)
class FileName:
    """What a file's name gives. `folder` is the partition of its folder, if the folder is one's."""

    stream: str
    partition: int
    start: int
    folder: int | None


class Folders(Protocol):
    """The folders of a stream."""

    # The prefix of all keys.
    prefix: str
    # The pattern of names.
    wanted: str
    # Whether listing new files lists everything.
    shows_all: bool

    def parse(self, key: str) -> FileName | None:
        """What a key says; None if it cannot be read."""

    def listed(self, store: Store, starts: Mapping[str, str]) -> Iterator[Found]:
        """The objects that may be new. For folders of partitions, `starts` gives the key after which new ones are."""

    def objects_in(self, store: Store, partition: int) -> Iterator[Found]:
        """All objects of one partition, perhaps with others."""

    def planned(self, store: Store, partitions: Sequence[PlannedPartition]) -> Iterator[Found]:
        """The planned files that exist, perhaps with others. A partition may be planned several times."""


def folders_of(stream: Stream) -> Folders:
    """The folders of a stream, by its layout."""
    match stream.layout:
        case Layout.PARTITION:
            return PartitionFolders(stream)
        case Layout.TIME:
            return TimeFolders(stream)
        case Layout.AIVEN:
            return AivenNames(stream)


def formats_of(stream: Stream, key: str) -> Iterator[Format]:
    """The formats that may have a file of this key."""
    for written_as in LANDED:
        if folders_of(replace(stream, format=written_as)).parse(key):
            yield written_as


def is_of_keys(stream: Stream, key: str) -> bool:
    """Whether a key is that of a file with keys, as the stream declares these."""
    if not stream.keys:
        return False
    return bool(re.fullmatch(rf"\.keys{endings(stream.keys)}", key.removeprefix(beginning(key))))


def beginning(key: str) -> str:
    """How the name of a file begins, which files of values and of keys have in common: all but its ending."""
    match = _BEGINNING.match(key)
    return match[0] if match else key


def may_hold_records(stream: Stream, key: str) -> bool:
    """Whether an object below a stream's folder counts as a file of it.

    A key that ends in a slash marks a folder. Jobs leave objects whose name, or a folder's name, begins with `_` or
    `.`: `_SUCCESS`, `_temporary/…`, `.….crc`. Files of keys and headers, `….keys.avro`, are those of other columns.
    """
    *within, name = key.removeprefix(f"{stream.name}/").split("/")
    beside = any(part.startswith(("_", ".")) for part in within)
    return (
        bool(name)
        and not beside
        and not _BESIDE_VALUES.fullmatch(name)
        and (name.startswith(f"{stream.name}+") or not name.startswith(("_", ".")))
    )


class PartitionFolders:
    """A folder for each partition, listed from the position read so far."""

    shows_all = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.prefix = folders(stream.name)
        self.wanted = f"partition=<n>/{stream.name}+<n>+<first offset, 10 digits>{_ending(stream.format)}"
        pattern = rf"partition=(?P<folder>0|[1-9][0-9]*)/{FILE_NAME}{endings(stream.format)}"
        self._name = re.compile(re.escape(f"{stream.name}/") + pattern)

    def parse(self, key: str) -> FileName | None:
        match = self._name.fullmatch(key)
        return _said(match, int(match["folder"])) if match else None

    def listed(self, store: Store, starts: Mapping[str, str]) -> Iterator[Found]:
        return listed(store, self._stream.name, starts)

    def objects_in(self, store: Store, partition: int) -> Iterator[Found]:
        return objects_in(store, self._stream.name, partition)

    def planned(self, store: Store, partitions: Sequence[PlannedPartition]) -> Iterator[Found]:
        keys_in = dict[str, list[str]]()
        for partition in partitions:
            in_folder = folder(self._stream.name, partition.partition)
            keys_in.setdefault(in_folder, []).extend(_keys(self._stream, partition))
        # Behind the first file, but for its last letter; behind all, where none is planned.
        starts = {in_folder: min(keys)[:-1] if keys else f"{in_folder}~" for in_folder, keys in keys_in.items()}
        return listed(store, self._stream.name, starts)


class TimeFolders:
    """Folders of hours or days with any names, each with files of any partition.

    A late record may go into any old folder, so all are listed.
    """

    shows_all = True

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.prefix = f"{stream.name}/"
        self.wanted = f"<time>/{stream.name}+<n>+<first offset, 10 digits>{_ending(stream.format)}"
        self._name = re.compile(rf"{re.escape(self.prefix)}([^/]+/)*{FILE_NAME}{endings(stream.format)}")

    def parse(self, key: str) -> FileName | None:
        match = self._name.fullmatch(key)
        return _said(match, None) if match else None

    def listed(self, store: Store, starts: Mapping[str, str]) -> Iterator[Found]:
        return listed_between(store, self.prefix)

    def objects_in(self, store: Store, partition: int) -> Iterator[Found]:
        return listed_between(store, self.prefix)

    def planned(self, store: Store, partitions: Sequence[PlannedPartition]) -> Iterator[Found]:
        keys = [key for partition in partitions for key in _keys(self._stream, partition)]
        return listed_between(store, self.prefix, min(keys)[:-1], max(keys)) if keys else iter(())


class AivenNames:
    """Files of any partition beside those of other topics, named `<stream>-<n>-<first offset>`, or so in any folders
    below one of the stream's. Nothing in a name has to say the format.

    Names do not sort by offset, so all are listed.
    """

    shows_all = True

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Those of topics whose names only begin so are passed over.
        self.prefix = f"{stream.name}-"
        self.wanted = f"{stream.name}-<n>-<first offset>, as {{{{topic}}}}-{{{{partition}}}}-{{{{start_offset}}}} says"
        begins = rf"({re.escape(stream.name)}/([^/]+/)*)?(?={re.escape(stream.name)}-[0-9]+-[0-9])"
        self._name = re.compile(rf"{begins}{DASHED_NAME}({endings(stream.format)}|{ENDINGS})")

    def parse(self, key: str) -> FileName | None:
        match = self._name.fullmatch(key)
        return _said(match, None) if match else None

    def listed(self, store: Store, starts: Mapping[str, str]) -> Iterator[Found]:
        beside = listed_between(store, self.prefix)
        yield from (found for found in beside if (match := named_file(f"/{found.entry.key}")) and self._is_mine(match))
        yield from listed_between(store, f"{self._stream.name}/")

    def objects_in(self, store: Store, partition: int) -> Iterator[Found]:
        return self.listed(store, {})

    def planned(self, store: Store, partitions: Sequence[PlannedPartition]) -> Iterator[Found]:
        wanted = {key for partition in partitions for key in _keys(self._stream, partition)}
        return (found for found in self.listed(store, {}) if found.entry.key in wanted)

    def _is_mine(self, match: re.Match[str]) -> bool:
        return match["stream"] == self._stream.name


def _keys(stream: Stream, partition: PlannedPartition) -> list[str]:
    source = f"{stream.source.rstrip('/')}/"
    paths = (path for file in partition.files for path in (file.path, file.keys) if path)
    return [path.removeprefix(source) for path in paths]


def _said(match: re.Match[str], folder: int | None) -> FileName:
    return FileName(match["stream"], int(match["partition"]), int(match["start"]), folder)


def _ending(written_as: Format) -> str:
    return f".{written_as}"


def instead_of(sink: str, key: str) -> str:
    """What to do about a tool's file of this key."""
    if sink != AIVEN:
        return LAND_OTHERWISE
    if ".csv" in key.rpartition("/")[2]:
        return NO_CSV
    as_written = 'format="json" if its format.output.type is jsonl or json, format="avro" if that is avro'
    return f'declare layout="aiven", and {as_written}; if it is csv, {NO_CSV}'


def sink_of(key: str) -> str | None:
    """The tool that names files so. None if it is not known.

    >>> sink_of("orders/part-00000-0b1f6a7e-5c1d-4b52-9a47-2f5c8d1e9c3b-c000.snappy.parquet")
    "Spark's file sink"
    >>> sink_of("orders/orders-3-1200.gz")
    "Aiven's sink under its default template"
    >>> sink_of("orders/notes.txt")
    """
    name = key.rpartition("/")[2]
    return next((sink for sink, pattern in _OTHER_SINKS.items() if re.fullmatch(pattern, name)), None)
