"""Key buckets: the part of a stream partition that one of Samza's virtual tasks processes (SAMZA-2687).

They are here for people who come from Samza: to find out which of its tasks had a key, and which keys had none.
Coset's own tasks own residues of the placement hash instead, `h(key) mod L`: that is never negative, every one
of the L residues has a task, and co-partitioned streams agree on it by construction.
"""

from __future__ import annotations

from collections.abc import Iterator

from partitioning.errors import Finding, Refused
from partitioning.hashes import java_hash
from partitioning.kinds import Kind

# Which Samza answers: the release (1.8.0), or the elasticity work before it was reverted.
RELEASE = "release"
ELASTIC_FINAL = "elastic final"
BUILDS = (RELEASE, ELASTIC_FINAL)

_SLOTS = 31
_MIN = -(2**31)


def key_bucket(
    key: object, offset: str | None, factor: int, *, key_format: str = "string", build: str = RELEASE
) -> int:
    """The bucket of a record among `factor`, exactly as Samza gives it; a boolean key is Java's Boolean.

    A record without a key goes by its offset's text, one without either to bucket 0. Factor 1 has no buckets: -1.
    The hash -2^31 gives a negative bucket, which no task of Samza owns, so that the record is skipped:

    >>> [key_bucket(key, "0", 3) for key in ("user-1", "user-2", "polygenelubricants")]
    [0, 2, -2]

    Raises Refused for a factor below 1, an unknown build or a key that its format cannot hold.
    """
    if findings := tuple(check_build(factor, build)):
        raise Refused(*findings)
    if factor == 1:
        return -1
    h = _hash(key, offset, key_format)
    # Java has no absolute value of -2^31.
    absolute = h if h == _MIN else abs(h)
    return _rem(absolute if build == RELEASE else _rem(absolute, _SLOTS), factor)


def check_build(factor: int, build: str) -> Iterator[Finding]:
    """Findings for an elasticity factor or the name of a build."""
    if factor < 1:
        what = f"an elasticity factor of {factor} gives no key buckets"
        yield Finding.of(Kind.SAMZA, what, "factor", "use 1 or more", factor=factor)
    if build not in BUILDS:
        what = f"unknown build {build!r} of Samza"
        yield Finding.of(Kind.SAMZA, what, "build", f"use {' or '.join(BUILDS)}", build=build)


def _hash(key: object, offset: str | None, key_format: str) -> int:
    if isinstance(key, bool):
        return 1231 if key else 1237
    if key is not None:
        return java_hash(key, key_format)
    return 0 if offset is None else java_hash(offset)


def _rem(dividend: int, divisor: int) -> int:
    """Java's remainder: it has the sign of the dividend."""
    return dividend % divisor if dividend >= 0 else -(-dividend % divisor)
