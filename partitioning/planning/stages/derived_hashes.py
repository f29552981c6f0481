"""Derived hashes: the hashes that place the records of a stage's steps, derived from those of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import KeyHash, Placement
from partitioning.planning.exchanges.derived_placements import DerivedPlacement, changes_keys

# None among them stands for records that lie anywhere.
KeyHashes = frozenset[KeyHash | None]


def keys_of(graph: Graph) -> Mapping[str, DerivedPlacement]:
    """The key column of each stream and step."""
    streams = {stream.name: DerivedPlacement(stream.key, stream.key_format, ()) for stream in graph.streams}
    return streams | {step.name: DerivedPlacement(step.key, step.key_format, ()) for step in graph.steps}


def derive_hashes(
    steps: Sequence[Step], read: Mapping[str, KeyHash | None], keys: Mapping[str, DerivedPlacement]
) -> Mapping[str, KeyHashes]:
    """The hashes that place the records of each relation of a stage: first its inputs, then its steps."""
    lying: dict[str, KeyHashes] = {name: frozenset({key_hash}) for name, key_hash in read.items()}
    for step in steps:
        if changes_keys(step, keys):
            lying[step.name] = frozenset({None})
        else:
            lying[step.name] = _union(lying[name] for name in step.inputs)
    return lying


def apart(
    steps: Sequence[Step], lying: Mapping[str, KeyHashes], read: Mapping[str, Placement], where: str
) -> Iterator[Finding]:
    """Findings for keyed steps in which equal keys would not meet."""
    met = {step.name: _union(lying[name] for name in step.inputs) for step in steps if step.keyed}
    for name, key_hashes in met.items():
        if None in key_hashes:
            what = (
                f"{name} needs equal keys together, but records that it gets were given other keys, or were left by a "
                "stage of scheme max, and did not move"
            )
            then = "move them with .repartition() first, or give the stage that leaves them another scheme"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, name=name)
    if any(len(key_hashes - {None}) > 1 for key_hashes in met.values()):
        yield from _different(read, where)


def _union(several: Iterable[KeyHashes]) -> KeyHashes:
    return frozenset[KeyHash | None]().union(*several)


def _different(read: Mapping[str, Placement], where: str) -> Iterator[Finding]:
    for noun, values in (
        ("key formats", {name: placement.key_format for name, placement in read.items()}),
        ("placements", {name: placement.hash for name, placement in read.items()}),
    ):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value}" for name, value in values.items())
            what = f"streams that meet have different {noun} ({listed}); equal keys would not meet"
            then = "declare what their producers really use; a stream placed otherwise needs an exchange"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, listed=listed)
