"""Schema ids: under which id of a registry keys lie where they do, found by trying those that registries give first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from expectations.key_hashes import places_of_rows
from partitioning.errors import Refused
from partitioning.hashes import written_key
from partitioning.model.placement import HashName, hash_of_bytes, hash_schema, newest_of

# Registries count from 1.
_TRIED = range(1, 100_001)
# So many times less likely than not is it that an id fits by chance.
_SURELY = 1000


def schema_id_of(keys: Sequence[object], places: Sequence[int], count: int, name: HashName) -> int | None:
    """The one id under which all of these keys lie in these of `count` partitions, if their schema is otherwise the one
    that the hash of this name is of. None if none or several do, or keys are too few to tell.

    >>> name, later = (HashName(f"murmur2 of avro {id}(long)") for id in (7, 1234))
    >>> from partitioning.hashes import hash_of
    >>> keys = list(range(20))
    >>> schema_id_of(keys, [hash_of(later, "here")(key, "long") % 12 for key in keys], 12, name)
    1234
    """
    if hash_schema(name) is None or count ** len(keys) < len(_TRIED) * _SURELY:
        return None
    ids: np.ndarray = np.array(_TRIED, ">u4")
    for key, place in zip(keys, places, strict=True):
        if not len(ids):
            return None
        try:
            written = written_key(key, newest_of(name))
        except Refused:
            return None
        # A key differs from that under another id in these four bytes.
        under = np.tile(np.frombuffer(written, np.uint8), (len(ids), 1))
        under[:, 1:5] = ids.view(np.uint8).reshape(-1, 4)
        ids = ids[places_of_rows(under, hash_of_bytes(name), count) == place]
    return int(ids[0]) if len(ids) == 1 else None
