"""Strategies: records for Hypothesis to make, by what a pipeline's streams declare. It has to be installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from uuid import UUID

from hypothesis import strategies as st

from coset.testing.runs import Landed
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import NullKeys, Stream

# Few keys, so that records meet, and the same in each stream.
_KEYS = 4
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_DECIMAL = re.compile(r"DECIMAL\((?P<width>[0-9]+),\s*(?P<scale>[0-9]+)\)")


def records(
    pipeline: Pipeline, columns: Mapping[str, Mapping[str, str]] | None = None, *, most: int = 12
) -> st.SearchStrategy[Landed]:
    """Records of each stream, one to `most`, whose keys meet; for `run` and `assert_same_everywhere`.

    `columns` has the types of the columns of a stream beside its key, by DuckDB's names, where the stream does not
    declare them. Raises Refused for a stream of which neither says them, and for types that are not made here.
    """
    given, rows, findings = columns or {}, dict[str, st.SearchStrategy[list[dict[str, object]]]](), list[Finding]()
    for stream in pipeline.streams:
        types = {**stream.columns, **given.get(stream.name, {})}
        if not types and stream.name not in given:
            then = f"give them: records(pipeline, {{{stream.name!r}: {{'amount': 'BIGINT'}}}})"
            what = f"stream {stream.name!r} declares no columns"
            findings.append(Finding.of(Kind.ARGUMENT, what, "records()", then, stream=stream.name))
        with noting(findings):
            key = _keys(stream, types)
            fields = {name: _values(name, kind) for name, kind in types.items() if name not in key}
            row = st.fixed_dictionaries({**key, **fields})
            rows[stream.name] = st.lists(row, min_size=1, max_size=most)
    refuse(findings)
    return st.fixed_dictionaries(rows)


def _keys(stream: Stream, types: Mapping[str, str]) -> dict[str, st.SearchStrategy[object]]:
    """The values of the column that is the key; of several, two each."""
    if parts := key_parts(stream.key):
        return {name: _part(name, types.get(name, "VARCHAR").upper()) for name in parts}
    made: dict[KeyFormat, list[object]] = {
        KeyFormat.STRING: [f"key-{number}" for number in range(_KEYS)],
        KeyFormat.LONG: list(range(_KEYS)),
        KeyFormat.INT: list(range(_KEYS)),
        KeyFormat.DOUBLE: [number + 0.5 for number in range(_KEYS)],
        KeyFormat.UUID: [str(UUID(int=number)) for number in range(_KEYS)],
        KeyFormat.BYTES: [bytes([number]) for number in range(_KEYS)],
    }
    keys = st.sampled_from(made[stream.key_format])
    return {stream.key: keys if stream.null_keys is NullKeys.REFUSE else st.one_of(keys, st.none())}


def _part(name: str, kind: str) -> st.SearchStrategy[object]:
    if kind == "VARCHAR":
        return st.sampled_from([f"{name}-{number}" for number in range(2)])
    return st.integers(0, 1) if kind in _BITS else _values(name, kind)


def _values(name: str, kind: str) -> st.SearchStrategy[object]:
    """Values of a column. None is not among them: where all of a column are, nobody knows its type."""
    kind = kind.upper()
    if bits := _BITS.get(kind):
        # Sums of them are no overflow.
        return st.integers(-(2 ** min(bits - 1, 40)), 2 ** min(bits - 1, 40) - 1)
    if decimal := _DECIMAL.fullmatch(kind):
        whole, scale = int(decimal["width"]) - int(decimal["scale"]), int(decimal["scale"])
        return st.decimals(-(10**whole) + 1, 10**whole - 1, places=scale)
    simple: dict[str, st.SearchStrategy[object]] = {
        "BOOLEAN": st.booleans(),
        "VARCHAR": st.text("abcdeé_ ", max_size=8),
        "DOUBLE": st.floats(-1e6, 1e6),
        "FLOAT": st.floats(-1e6, 1e6, width=32),
        "BLOB": st.binary(max_size=8),
        "DATE": st.dates(date(2000, 1, 1), date(2040, 1, 1)),
        "TIMESTAMP": st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001  DuckDB's has no zone
    }
    if kind not in simple:
        then = f"give one of {', '.join([*_BITS, *simple])}, DECIMAL(p,s), or write a strategy for the stream"
        raise Refused.of(Kind.ARGUMENT, f"no values are made of type {kind}", f"column {name!r}", then, column=name)
    return simple[kind]
