"""File names: landed files name their stream, partition and first offset, as Kafka Connect writes them."""

from __future__ import annotations

import re

# The first part of a name, before its ending; `+` is in no topic's name.
NAME = r"(?P<stream>[^/+]+)\+(?P<partition>0|[1-9][0-9]*)\+(?P<start>[0-9]{10,20})"
# A whole name at the end of a path.
NAMED = re.compile(rf"/{NAME}\.[^/]*$")
