"""Misplaced records: those that their producer put where their key does not belong, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

from expectations.colocation import FITS, GREW
from partitioning.hashes import json_text
from partitioning.model.placement import OPAQUE, json_fields
from partitioning.model.streams import Stream
from partitioning.sections import many


def fitting(judged: Iterable[tuple[str, ExpectationSuiteValidationResult]]) -> dict[str, str | int]:
    """The hash by which all keys compared of an input lie where they do, or the fewer partitions by which all others
    do, if there are such; `judged` has the answers about each input."""
    found = ((name, each.result.get("details") or {}) for name, answer in judged for each in answer.results)
    return {name: fits for name, details in found if (fits := details.get(FITS) or details.get(GREW))}


def remedy(streams: Iterable[Stream], fits: Mapping[str, str | int]) -> str:
    """What to do about records of these streams that do not lie where their keys hash: declare the hash that fits; if
    none is known to, or the topic has grown, let the records move.

    >>> paid, sent = (Stream(name, "s3://landing/topics", "k", 4) for name in ("paid", "sent"))
    >>> remedy([paid], {"paid": "crc32"})
    'all keys compared of paid lie where crc32 puts them: if their producer hashes so, declare hash="crc32"'
    >>> remedy([sent], {}).partition("; ")[2]
    'to take its records from where they lie, declare hash="opaque" and move them, sent.repartition()'
    >>> remedy([sent], {"sent": 3}).partition(":")[0]
    'the keys of sent that lie elsewhere lie by 3 partitions'
    """
    return "; ".join(_remedies(sorted(streams, key=lambda stream: stream.name), fits))


def _remedies(streams: list[Stream], fits: Mapping[str, str | int]) -> Iterator[str]:
    for name, partitions in ((stream.name, stream.partitions) for stream in streams):
        if isinstance(before := fits.get(name), int):
            yield (
                f"the keys of {name} that lie elsewhere lie by {many(before, 'partition')}: if the topic has {before}, "
                f"declare partitions={before}; if it has {partitions}, so do records from before it grew, if no batch "
                f'had read it then; to take them from where they lie, declare hash="{OPAQUE}" and move them, '
                f"{name}.repartition(); once a batch has read them "
                "all, what is declared now is right, and steps that keep something go on under the same name="
            )
        elif before:
            yield (
                f"all keys compared of {name} lie where {fits[name]} puts them: if their producer hashes so, "
                f'declare hash="{fits[name]}"'
            )
    for stream in streams:
        if (fields := json_fields(stream.hash)) and stream.name not in fits:
            written = ",".join(f"{json_text(name)}:…" for name in fields)
            yield (
                f"see how the keys of {stream.name} are written: by its declaration as {{{written}}}, with the fields "
                "in this order, no spaces and no others"
            )
    if lost := [stream.name for stream in streams if stream.name not in fits]:
        moved = " and ".join(f"{name}.repartition()" for name in lost)
        yield (
            f"correct the producer of {' and '.join(lost)}, or its hash= and key_format=; to take its records from "
            f'where they lie, declare hash="{OPAQUE}" and move them, {moved}'
        )
