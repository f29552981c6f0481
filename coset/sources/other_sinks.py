"""Other sinks: tools whose files are no files of a topic, told by their names."""

from __future__ import annotations

import re

AIVEN = "Aiven's sink under its default template"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMES = {
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
    return next((sink for sink, pattern in _NAMES.items() if re.fullmatch(pattern, name)), None)
