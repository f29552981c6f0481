"""File names: landed files name their stream, partition and first offset, as Kafka Connect's sinks write them."""

from __future__ import annotations

import re

# The first part of a name, before its ending; `+` is in no topic's name.
NAME = r"(?P<stream>[^/+]+)\+(?P<partition>0|[1-9][0-9]*)\+(?P<start>[0-9]{10,20})"
# The same by the template that Aiven's sinks have unless told otherwise, padded or not.
DASHED = r"(?P<stream>[^/+]+)-(?P<partition>[0-9]{1,10})-(?P<start>[0-9]{1,20})"
_NAMED = (re.compile(rf"/{NAME}\.[^/]*$"), re.compile(rf"/{DASHED}(\.[^/]*)?$"))


def named(path: str) -> re.Match[str] | None:
    """What the name at the end of a path says.

    >>> named("s3://landing/orders-eu-3-1200.gz")["stream"], named("s3://landing/notes.txt")
    ('orders-eu', None)
    """
    return next((match for pattern in _NAMED if (match := pattern.search(path))), None)
