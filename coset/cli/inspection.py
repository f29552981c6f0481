"""Inspection on the command line: what has landed of a topic, and the lines of Python that declare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow.compute as pc

from coset.batches.key_search import HowSure, KeySearch, Tried, search, search_of_objects
from coset.cli.inspected_keys import InspectedKey, key_notes, key_of, key_text, key_value, notes_of
from coset.cli.output import Answer, Block, Table
from coset.sources import landed
from coset.sources.discovery import discover
from coset.sources.formats.landed_file import PARTITION
from coset.sources.landed_keys import without_made
from coset.sources.landed_topic import SeenTopic, look
from partitioning.authoring.declared import Options, declaration, stream_of
from partitioning.commands import Repeat, Then
from partitioning.errors import CosetError, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.gaps import Gap, gaps
from partitioning.model.offsets import check_name
from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat
from partitioning.model.sources import IcebergSource, KafkaSource, source_findings, source_of
from partitioning.model.streams import (
    DELETED,
    OFFSET,
    USUAL_FORMAT,
    Column,
    Discovered,
    DiscoveredPartition,
    Layout,
    NullKeys,
    Sparse,
    Stream,
)
from partitioning.sections import cut, many
from partitioning.values import replace
from spark_jobs.sql.relation_columns import is_plain, renaming

_ISO = r"^[12][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]"
# From 2001 to 2096.
_MILLISECONDS = (10**12, 4 * 10**12)
# As no sink leaves any, to see how many offsets are missing.
_ANY_GAP = Sparse(2**62)
_MOST_SHOWN = 32
_MOVED = {HowSure.MOSTLY, HowSure.BY_TURNS, HowSure.NOTHING}


def inspect(address: str) -> Answer:
    """What has landed in a topic's folder, or lies in its broker, and its declaration.

    Raises Refused if no records of one topic are there, or none with a key. What is wrong with them otherwise is told
    beside the answer.
    """
    if isinstance(source_of(address), IcebergSource):
        return _table(address)
    topic = _look(address)
    if not topic.columns:
        raise _unread(topic, address)
    given, offset = topic.stream.key, topic.stream.offset
    keys = [column for column in topic.columns if column.name != offset and given in ("", column.name)]
    written = filter(None, (topic.stream.format, topic.keys.written_as))
    declares = bool(topic.stream.changes) or not all(each.has_types for each in written)
    if isinstance(topic.stream.origin, KafkaSource) and not given:
        found = search_of_objects(topic.sample, PARTITION, keys, topic.stream.partitions)
    else:
        of_rows = bool(topic.stream.changes) and not given
        found = search(topic.sample, PARTITION, keys, topic.stream.partitions, declares=declares, of_rows=of_rows)
    if found.best is None:
        raise _without_keys(address) if given else _keyless(topic.columns, topic.stream, address)
    key = key_of(topic, found)
    options, stream, discovered, wrong = _discovered(topic.stream, found.best, _options(topic, found, key))
    wrong = _with_unread(wrong, topic)
    times, code = list(_times(topic)), declaration(stream, options, ".repartition()" if found.told in _MOVED else "")
    says = [*key_text(found), *key_notes(found), *notes_of(key, found, stream.name), *_of_key_files(topic, stream)]
    value = {
        "address": address,
        "stream": stream.name,
        "source": stream.source,
        "format": stream.format,
        "layout": stream.layout,
        "changes": stream.changes,
        "partitions": stream.partitions,
        "offsets": [_offsets(stream, each) for each in discovered.partitions],
        "columns": _columns(topic, stream, discovered),
        "left_out": topic.left_out,
        "times": times,
        "key": {**key_value(found, key), "says": says},
        "declaration": "\n".join(code),
    }
    return Answer(value, _text(topic, stream, discovered, says, times, code), wrong)


def _table(address: str) -> Answer:
    """What an Iceberg table holds, by its buckets, and its declaration."""
    from coset.sources.iceberg.declared_tables import declared  # noqa: PLC0415  an extra

    place, _, name = address.rstrip("/").rpartition(".")
    refuse(source_findings(source_of(place), address))
    stream, why = declared(check_name(name, "stream"), place)
    discovered = discover([stream])[0]
    options = {"key": stream.key, "partitions": stream.partitions}
    if stream.key_format is not KeyFormat.STRING:
        options["key_format"] = stream.key_format.value
    if stream.table:
        options["kept"] = True
    if stream.offset != OFFSET:
        options["offset"] = stream.offset
    columns = [each for each in discovered.columns if each.name not in {stream.offset, *([DELETED] * stream.table)}]
    names = [each.name for each in columns]
    renamed = "" if all(map(is_plain, names)) else renaming(names, stream.key, stream.key_format)
    code = declaration(stream, options, renamed)
    says = f"It lies by {stream.partitions} buckets of {stream.key}, each a partition"
    if stream.partitions == 1:
        says = (
            f"It lies by no bucket, so it is one partition. {stream.key} stands for the key: name the column that rows "
            "are joined or counted by"
        )
    offsets = [_offsets(stream, each) for each in discovered.partitions]
    value = {
        "address": address,
        "stream": stream.name,
        "source": stream.source,
        "changes": None,
        "kept": stream.table,
        "partitions": stream.partitions,
        "offsets": offsets,
        "columns": columns,
        "key": {"columns": [stream.key], "key_format": stream.key_format, "hash": stream.hash, "says": [why]},
        "declaration": "\n".join(code),
    }
    title = (
        f"{stream.name}: {many(sum(each['records'] for each in offsets), 'row')} in {many(len(offsets), 'partition')}"
    )
    shown = tuple((str(each["partition"]), f"{each['records']:,}") for each in offsets[:_MOST_SHOWN])
    table = Table("Columns", ("column", "type"), tuple((each.name, each.type) for each in columns))
    return Answer(value, [Table(title, ("partition", "rows"), shown), table, says, *filter(None, [why]), "", *code])


def _look(address: str) -> SeenTopic:
    where, _, name = address.rstrip("/").rpartition("/")
    source = source_of(where)
    if not isinstance(source, KafkaSource):
        return look(address)
    from coset.sources.kafka import broker_topic  # noqa: PLC0415  few topics are read from brokers

    refuse(source_findings(source, address))
    return broker_topic.look(source, where, check_name(name, "stream"))


def _unread(topic: SeenTopic, address: str) -> CosetError:
    """Why no record of a topic could be looked at."""
    then: Then = ("when records are there: ", Repeat())
    nothing = Refused.of(Kind.FOLDERS, "no record is there yet", address, then, address=address)
    if isinstance(topic.stream.origin, KafkaSource):
        return nothing
    try:
        landed.discover([replace(topic.stream, counted=False, offset=OFFSET)])
    except Refused as refused:
        # Which column is the key, and whether offsets have one, nobody has said.
        undeclared = {("name", topic.stream.key), ("name", OFFSET)}
        findings = [each for each in refused.findings if not undeclared.intersection(each.about)]
        if topic.stream.counted:
            findings = [each for each in findings if "without_offset" not in dict(each.about)]
        if findings:
            return Refused(*findings)
    if topic.unread:
        return Refused(*topic.unread)
    there, _ = landed.discover_sound(topic.stream)
    if any(each.files for each in there.partitions):
        return _keyless([each for each in there.columns if each.name != topic.stream.offset], topic.stream, address)
    return nothing


def _keyless(columns: Sequence[Column], stream: Stream, address: str) -> Refused:
    what = f"no column can be a key: there are {cut([f'{each.name} {each.type}' for each in columns])}"
    then = "land the record's key as a column of text, of a whole number or of bytes"
    if stream.layout is Layout.AIVEN:
        then += ": by format.output.fields=key,value,offset, or, if the value has it, by format.output.envelope=false"
    return Refused.of(Kind.KEYS_DO_NOT_MEET, what, address, then, address=address)


def _without_keys(address: str) -> Refused:
    then = "declare key='key', hash='opaque' and null_keys='own task', and rekey() by a column before what goes by keys"
    return Refused.of(Kind.KEYS_DO_NOT_MEET, "no record that was looked at has a key", address, then, address=address)


def _with_unread(wrong: CosetError | None, topic: SeenTopic) -> CosetError | None:
    """What is wrong, with what only reading the records shows."""
    said = wrong.findings if wrong else ()
    more = [each for each in topic.unread if each.where not in {finding.where for finding in said}]
    return Refused(*said, *more) if more else wrong


def _options(topic: SeenTopic, found: KeySearch, key: InspectedKey) -> Options:
    """How the stream is declared, but for its name and count."""
    stream, best = topic.stream, found.best
    assert best
    placing = best.placing
    columns = dict(stream.columns)
    # A record in a broker has its key beside its value.
    beside = topic.of_keys.intersection([key.key_bytes] if key.key_bytes else key.columns)
    if beside and topic.keys.written_as and not topic.keys.written_as.has_types:
        seen = {column.name: column.type for column in topic.columns if column.name in beside}
        columns |= {**seen, **({key.key_bytes: "BLOB"} if key.key_bytes else {})}
    if columns and placing.column_type and not stream.key and (not beside or placing.columns[0] in columns):
        columns[placing.columns[0]] = placing.column_type
    columns |= key.types
    hash = OPAQUE if placing.as_text or found.told in _MOVED else placing.hash
    given = {
        "hash": (hash, MURMUR2),
        "null_keys": (NullKeys.OWN_TASK if best.without else NullKeys.REFUSE, NullKeys.REFUSE),
        "offset": (None if stream.counted else stream.offset, OFFSET),
        "format": (stream.format, USUAL_FORMAT),
        "columns": (columns, {}),
        "keys": (topic.keys.written_as if beside else None, None),
        "layout": (stream.layout, Layout.PARTITION),
    }
    plain = {name: str(value) if isinstance(value, str) else value for name, (value, _) in given.items()}
    return {**key.options, **{name: plain[name] for name, (value, usual) in given.items() if value != usual}}


def _of_key_files(topic: SeenTopic, stream: Stream) -> Iterator[str]:
    """What is to be known of files of keys beside those of values."""
    keys = topic.keys
    if keys.unread:
        some = keys.unread[0].rpartition("/")[2]
        yield (
            f"{many(len(keys.unread), 'file')} of keys are of no format that is read, as {some}: set keys.format.class "
            "to AvroFormat, as is its default, and land the topic anew; or name columns of the value as the key"
        )
    if stream.keys:
        yield f'Its key lies in {many(len(keys.names), "file")} beside those of values: keys="{stream.keys}" reads them'
    elif keys.names:
        yield (
            f"{many(len(keys.names), 'file')} of keys beside those of values are passed over: they say no more "
            f'of where records lie. keys="{keys.written_as}" reads the key from them'
        )


def _declared(stream: Stream, best: Tried, options: Options) -> Stream:
    """The stream as a pipeline with that declaration has it."""
    is_table = bool(stream.changes)
    return stream_of(
        stream.name,
        partitions=best.partitions,
        usual_source=stream.source,
        table=is_table,
        changes=stream.changes,
        **options,
    )


def _discovered(topic: Stream, best: Tried, options: Options) -> tuple[Options, Stream, Discovered, CosetError | None]:
    """The options, with those for offsets that are missing, the stream, what is there of it, and what is wrong."""
    stream = _declared(topic, best, options)
    if isinstance(topic.origin, KafkaSource):
        return options, stream, discover([stream])[0], None
    try:
        return options, stream, landed.discover([stream])[0], None
    except CosetError as error:
        wrong = error
    if not stream.counted and all(finding.kind is Kind.STREAM_GAP for finding in wrong.findings):
        sound, _ = landed.discover_sound(replace(stream, sparse=_ANY_GAP))
        holes = [len(gap.offsets) for each in sound.partitions for gap in _gaps(stream, each) if gap.file is None]
        for offsets in ("sparse", f"sparse({max(holes, default=0)})"):
            sparse = {**options, "offsets": offsets}
            try:
                return sparse, (stream := _declared(topic, best, sparse)), landed.discover([stream])[0], None
            except Refused:
                continue
    stream = _declared(topic, best, options)
    return options, stream, landed.discover_sound(stream)[0], wrong


def _gaps(stream: Stream, there: DiscoveredPartition) -> list[Gap]:
    return list(gaps(replace(stream, sparse=_ANY_GAP), there.partition, there.beginning, there.files, ()))


def _offsets(stream: Stream, there: DiscoveredPartition) -> dict[str, int]:
    """What a partition holds, in numbers."""
    return {
        "partition": there.partition,
        "first": there.beginning,
        "next": there.end,
        "records": sum(file.records for file in there.files),
        "missing": sum(gap.missing for gap in _gaps(stream, there)),
        "doubles": sum(double.records for double in there.doubles),
    }


def _columns(topic: SeenTopic, stream: Stream, discovered: Discovered) -> Sequence[Column]:
    """The columns of records, as far as they are known."""
    columns = without_made(stream, discovered.columns) or topic.columns
    return [column for column in columns if column.name != DELETED] if stream.changes else columns


def _times(topic: SeenTopic) -> Iterator[dict[str, str]]:
    """The columns whose values look like times, with the first and the last that was seen."""
    for column in topic.columns:
        values = topic.sample[column.name].drop_null()
        if not len(values) or column.name == topic.stream.offset:
            continue
        if not column.type.startswith(("TIMESTAMP", "DATE", "VARCHAR", "BIGINT")):
            continue
        least, most = (pc.min_max(values)[name] for name in ("min", "max"))
        if column.type not in {"VARCHAR", "BIGINT"}:
            yield {"column": column.name, "first": str(least), "last": str(most)}
        elif column.type == "VARCHAR" and pc.all(pc.match_substring_regex(values, _ISO)).as_py():
            yield {"column": column.name, "first": str(least), "last": str(most), "as": "text"}
        elif column.type == "BIGINT" and _MILLISECONDS[0] <= least.as_py() and most.as_py() < _MILLISECONDS[1]:
            first, last = (datetime.fromtimestamp(each.as_py() / 1000, UTC).isoformat(" ") for each in (least, most))
            yield {"column": column.name, "first": first, "last": last, "as": "milliseconds"}


def _text(
    topic: SeenTopic,
    stream: Stream,
    discovered: Discovered,
    says: Sequence[str],
    times: Sequence[Mapping[str, str]],
    code: Sequence[str],
) -> Iterator[Block]:
    offsets = [_offsets(stream, each) for each in discovered.partitions]
    records, layout = sum(each["records"] for each in offsets), stream.layout
    lies = {
        Layout.PARTITION: "in a folder for each partition",
        Layout.TIME: 'in folders of times, layout="time"',
        Layout.AIVEN: 'named as by Aiven\'s sinks, layout="aiven"',
    }
    notes = [f"{stream.format.noun}, {lies[layout]}"]
    if isinstance(stream.origin, KafkaSource):
        notes = [f"{stream.format.noun}, in its brokers; offsets count as records"]
    if topic.beside:
        notes.append(f"{many(topic.beside, 'file')} beside the folders of partitions, or with other names, passed over")
    if stream.counted:
        notes.append("No column has the offsets: they are counted from the one in each file's name, offset=None")
    if missing := sum(each["missing"] for each in offsets):
        why = "as of a compacted or transactional topic, or because files are missing: look whether all have landed"
        notes.append(f"{many(missing, 'offset')} without a record, {why}")
    if doubles := sum(each["doubles"] for each in offsets):
        notes.append(f"{many(doubles, 'record')} that other files have too, all the same: each counts once")
    rows = [tuple(f"{each[name]:,}" for name in each) for each in offsets[:_MOST_SHOWN]]
    if len(offsets) > _MOST_SHOWN:
        notes.append(f"The first {_MOST_SHOWN} partitions; `--json` has all")
    title = f"{stream.name}: {many(records, 'record')} in {many(stream.partitions, 'partition')}"
    yield Table(title, tuple(offsets[0]) if offsets else (), rows, notes)
    looks = {each["column"]: f"{each['first']} to {each['last']}{_as(each)}" for each in times}
    columns = [(each.name, each.type, looks.get(each.name, "")) for each in _columns(topic, stream, discovered)]
    left_out = [(name, "left out", why) for name, why in topic.left_out.items()]
    yield Table("Columns, with the times in the records looked at", ("column", "type", "times"), [*columns, *left_out])
    if stream.changes:
        yield (
            "These are a table's changes, by Debezium. Where they have no schema beside them, days, times and decimals "
            "look like numbers or text: write the table's own types into columns=, as docs/how-to/debezium.md says"
        )
    yield from says
    yield ""
    yield from code


def _as(time: Mapping[str, str]) -> str:
    match time.get("as"):
        case "text":
            return f", text: {time['column']}::TIMESTAMP in SQL"
        case "milliseconds":
            return f", milliseconds: make_timestamp({time['column']} * 1000) in SQL"
        case _:
            return ""
