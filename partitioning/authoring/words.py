"""Words: the texts that options of pipelines take, so that editors and type checkers know them."""

from __future__ import annotations

from typing import Literal

from partitioning.model.graph import Join, Missing
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Format, Layout, NullKeys
from partitioning.model.table_mode import Mode, Updates
from partitioning.model.watermarks import Late

# Which unmatched records a join keeps: none, those of the first flow, or all.
How = Join | Literal["inner", "left", "full"]
# What becomes of a record without a key.
NullKey = NullKeys | Literal["refuse", "drop", "own task"]
# What a batch does to the rows of a result table that are there.
WriteMode = Mode | Literal["append", "upsert", "replace", "changelog"]
# How a small batch changes rows of an upserted table.
UpdateWay = Updates | Literal["rewrite", "beside"]
# What becomes of a record that comes when its window was given.
LateRecord = Late | Literal["drop", "set aside", "correct"]
# What becomes of a record for which no version is valid.
MissingVersion = Missing | Literal["null", "drop"]
# How a producer serialises keys.
KeyFormatName = (
    KeyFormat | Literal["string", "long", "int", "double", "uuid", "bytes", "json", "avro", "protobuf", "json-schema"]
)
# How records are written, and in which folders and names files lie.
FormatName = Format | Literal["parquet", "avro", "json", "bytes"]
LayoutName = Layout | Literal["partition", "time", "aiven"]
