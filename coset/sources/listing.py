"""Listing: the objects in a stream's partition folders, from the position read so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from partitioning.documents.store import Found, Store

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
