"""Listing: what lies in the folders of a stream's partitions, from where each was read up to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from partitioning.documents.store import Found, Store

# A request takes about as long as the keys that it may find in vain.
_FEW = 100
_DIGITS = re.compile(r"\+([0-9]+)\.[^/]*$")


def listed(store: Store, stream: str, starts: Mapping[str, str]) -> Iterator[Found]:
    """The objects in the folders of all partitions; in those that `starts` names, what lies behind that key.

    What was read is jumped over wherever a request ends in it, and keys that are jumped over later cost time too. So
    requests ask for few keys at first, and for more and more (up to 1,000) as long as they end in what is new or reach
    over all of a partition that was read. There are never many more of them than partitions, or than it takes to list
    all that is new; and of what was read, fewer keys than `_FEW` for each.
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
    """The objects whose keys start with a prefix, behind one key and up to another."""
    more = True
    while more:
        page = store.page(prefix, after)
        for found in page.objects:
            if last is not None and found.entry.key > last:
                return
            yield found
        after, more = page.objects[-1].entry.key if page.objects else "", page.more


def folders(stream: str) -> str:
    """How the keys in all folders begin."""
    return f"{stream}/partition="


def folder(stream: str, partition: int) -> str:
    """How the keys in a partition's folder begin."""
    return f"{folders(stream)}{partition}/"


def digits_of(keys: Iterable[str]) -> int:
    """To how many digits names fill up offsets, as far as these keys tell; 0 if they do not.

    >>> digits_of(["views/partition=0/views+0+0000001200.parquet", "views/partition=0/views+0+12000000000.parquet"])
    10
    """
    return min((len(match[1]) for key in keys if (match := _DIGITS.search(key))), default=0)


def key_before(stream: str, partition: int, offset: int, digits: int) -> str:
    """A key behind which all files of a partition are listed that begin at an offset or later.

    Names of so many digits sort by offset. Longer ones begin with another digit than 0, and lie among those of so many
    digits that do so too.

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
