"""Misplaced records, in partitions of other keys by their producer, and the remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

from expectations.colocation import FITS, GREW, SECOND, SPREAD, UNDER
from expectations.key_hashes import schema_id_of
from partitioning.framed_keys import json_text
from partitioning.hashes import read_key
from partitioning.model.placement import CRC32_CONSISTENT, OPAQUE, hash_schema, json_fields, keeps_empty
from partitioning.model.plan import Plan
from partitioning.model.private import MASK
from partitioning.model.receipt import Violation
from partitioning.model.streams import Stream
from partitioning.sections import many

# What explains where the keys compared of an input lie: the details of `ExpectKeysToHashToTheirPartition`.
Fits = Mapping[str, Mapping[str, Any]]


def fitting(judged: Iterable[tuple[str, ExpectationSuiteValidationResult]]) -> Fits:
    """The rule by which the compared keys of an input lie, for each input with such a rule; `judged` has the answers
    about each input."""
    found = ((name, each.result.get("details") or {}) for name, answer in judged for each in answer.results)
    return {name: details for name, details in found if any(map(details.get, (FITS, GREW, UNDER, SECOND, SPREAD)))}


def with_ids(plan: Plan, fits: Fits, violations: pd.DataFrame) -> Fits:
    """The explanations of where keys lie, with the schema registry's ids of keys that tasks found elsewhere: few of
    them are among the keys compared where a task reads other keys of their partition."""
    more = dict[str, Mapping[str, Any]]()
    for stage in plan.stages:
        for read in stage.streams:
            placed, of_input = read.placement, (violations["stage"] == stage.name) & (violations["input"] == read.name)
            rows = violations[of_input & (violations["violation"] == Violation.FOREIGN) & (violations["key"] != MASK)]
            rows = rows.drop_duplicates(["partition", "key"])
            keys = [read_key(str(key), placed.key_format) for key in rows["key"]]
            places = [int(partition) % placed.partitions for partition in rows["partition"]]
            under = None if read.name in fits else schema_id_of(keys, places, placed.partitions, placed.hash)
            if under is not None:
                more[read.name] = {UNDER: under}
    return {**fits, **more}


def remedy(streams: Iterable[Stream], fits: Fits) -> str:
    """The remedy for records of these streams that do not lie where their keys hash: declare the hash that fits; if
    none is known to, or the topic has grown, let the records move.

    >>> paid, sent = (Stream(name, "s3://landing/topics", "k", 4) for name in ("paid", "sent"))
    >>> remedy([paid], {"paid": {FITS: "crc32"}})
    'all keys compared of paid lie where crc32 puts them: if their producer hashes so, declare hash="crc32"'
    >>> remedy([sent], {}).partition("; ")[2]
    'to take its records from where they lie, declare hash="opaque" and move them, sent.repartition()'
    >>> remedy([sent], {"sent": {GREW: 3}}).partition(":")[0]
    'the keys of sent that lie elsewhere lie by 3 partitions'
    >>> remedy([sent], {"sent": {SECOND: "fnv1a"}}).partition(":")[0]
    'the keys of sent that do not lie by murmur2 lie by fnv1a'
    >>> remedy([sent], {"sent": {SPREAD: 8}}).partition(",")[0]
    '8 keys compared of sent lie in several partitions'
    >>> remedy([sent], {"sent": {UNDER: 8}}).partition(":")[0]
    'the keys of sent that lie elsewhere lie under schema 8'
    """
    return "; ".join(_remedies(sorted(streams, key=lambda stream: stream.name), fits))


def apart(streams: Iterable[Stream]) -> str:
    """What to do about equal keys in different tasks, which come from these streams of unknown placement.

    >>> apart([Stream("sent", "s3://landing/topics", "k", 4, hash=OPAQUE)])
    'if no hash of the key places the records of sent, move them: sent.repartition()'
    """
    names = [stream.name for stream in streams if stream.hash == OPAQUE]
    moved = " and ".join(f"{name}.repartition()" for name in names)
    return f"if no hash of the key places the records of {' and '.join(names)}, move them: {moved}" if names else ""


def emptied(streams: Iterable[Stream]) -> Iterator[str]:
    """What to know of streams whose producers treat an empty key as none."""
    if names := [stream.name for stream in streams if not keeps_empty(stream.hash)]:
        yield (
            f"an empty key of {' and '.join(names)} counts as none, as librdkafka puts it anywhere: "
            f'if its producer puts it into partition 0, declare hash="{CRC32_CONSISTENT}"'
        )


def _remedies(streams: list[Stream], fits: Fits) -> Iterator[str]:
    for stream in streams:
        name, partitions, found = stream.name, stream.partitions, fits.get(stream.name, {})
        as_they_lie = f'to take its records from where they lie, declare hash="{OPAQUE}" and move them, '
        if fit := found.get(FITS):
            yield (
                f"all keys compared of {name} lie where {fit} puts them: if their producer hashes so, "
                f'declare hash="{fit}"'
            )
        elif before := found.get(GREW):
            yield (
                f"the keys of {name} that lie elsewhere lie by {many(before, 'partition')}: if the topic has {before}, "
                f"declare partitions={before}; if it has {partitions}, so do records from before it grew, if no batch "
                f'had read it then; to take them from where they lie, declare hash="{OPAQUE}" and move them, '
                f"{name}.repartition(); once a batch has read them "
                "all, what is declared now is right, and steps that keep something go on under the same name="
            )
        elif under := found.get(UNDER):
            yield (
                f"the keys of {name} that lie elsewhere lie under schema {under}: if that is one of its keys in the "
                f"registry, add {under} to key_schemas=, the newest last; once a batch has read the last keys of an "
                "older one, leave that out"
            )
        elif second := found.get(SECOND):
            yield (
                f"the keys of {name} that do not lie by {stream.hash} lie by {second}: if two sorts of producers write "
                f"it, let them place keys alike; {as_they_lie}{name}.repartition()"
            )
        elif several := found.get(SPREAD):
            yield (
                f"{many(several, 'key')} compared of {name} lie in several partitions, so no hash of the key places "
                "its records: its producer takes partitions in turn or at random, as kafka-go without a Balancer; "
                f"let it place records by key; {as_they_lie}{name}.repartition()"
            )
    written = (stream for stream in streams if hash_schema(stream.hash) or json_fields(stream.hash))
    yield from (_as_declared(stream) for stream in written if stream.name not in fits)
    if whole := [stream.name for stream in streams if stream.changes and stream.name not in fits]:
        yield (
            f"if Connect writes the keys of {' and '.join(whole)} with their schema beside them, all of it is hashed: "
            f'declare hash="{OPAQUE}", and they are read where they lie'
        )
    if lost := [stream.name for stream in streams if not stream.changes and stream.name not in fits]:
        moved = " and ".join(f"{name}.repartition()" for name in lost)
        yield (
            f"correct the producer of {' and '.join(lost)}, or its hash= and key_format=; to take its records from "
            f'where they lie, declare hash="{OPAQUE}" and move them, {moved}'
        )


def _as_declared(stream: Stream) -> str:
    """How the keys of a stream are written by its declaration, for people to compare."""
    if schema := hash_schema(stream.hash):
        return (
            f"see with which ids the keys of {stream.name} begin, as the registry lists them for its subject: the "
            f"newest declared is {schema}; add others to key_schemas=, the newest last"
        )
    written = ",".join(f"{json_text(name)}:…" for name in json_fields(stream.hash))
    return (
        f"see how the keys of {stream.name} are written: by its declaration as {{{written}}}, with the fields in this "
        "order, no spaces and no others"
    )
