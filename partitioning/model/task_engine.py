"""The engine of a task: the version of DuckDB, what it answers otherwise than the one before it, and its memory."""

from __future__ import annotations

import re
from enum import StrEnum

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.values import Value

# What Coset was installed with while plans did not name it.
UNNAMED = "1.5.5"


class Differs(StrEnum):
    """How a call differs from one version to another: by its value or type, or one of both does not answer it."""

    VALUE = "other value"
    TYPE = "other type"
    REFUSED = "refused now"
    ACCEPTED = "accepted now"
    CRASHES = "crashes now"
    CRASHED = "crashed"

    @property
    def back(self) -> Differs:
        """The same, the other way round."""
        turned = {
            Differs.REFUSED: Differs.ACCEPTED,
            Differs.ACCEPTED: Differs.REFUSED,
            Differs.CRASHES: Differs.CRASHED,
            Differs.CRASHED: Differs.CRASHES,
        }
        return turned.get(self, self)


class OtherAnswer(Value, frozen=True, omit_defaults=True):
    """A function or operator that answers otherwise in this version than in the one before, and the streams and steps
    that use it. An `example` has what it `was` and what it is `now`; there is none of a call that ends the process."""

    name: str
    how: Differs
    used_by: tuple[str, ...]
    example: str = ""
    was: str = ""
    now: str = ""

    def __str__(self) -> str:
        if not self.example:
            return f"{self.name} ({self.how})"
        return f"{self.example} was {self.was}, is {self.now}"


class Engine(Value, frozen=True, omit_defaults=True):
    """The `version` of DuckDB. `was` is the former batch's, if it was another, and `answers` are the calls of the
    pipeline that differ between both; None if nobody has compared them."""

    version: str
    was: str = ""
    answers: tuple[OtherAnswer, ...] | None = ()

    @property
    def mixing(self) -> tuple[OtherAnswer, ...]:
        """What gives values of both kinds where old rows and new ones meet. A call that fails gives none."""
        return tuple(each for each in self.answers or () if each.how in {Differs.VALUE, Differs.TYPE})

    def __str__(self) -> str:
        return f"DuckDB {self.version}"


# Units are powers of 1000, or of 1024 with an `i`.
_AMOUNT = re.compile(r"(?P<amount>[0-9]{1,9}(\.[0-9]{1,9})?) ?(?P<unit>[KMGT])(?P<binary>i?)B?", re.IGNORECASE)
# With so many bytes, batches have as many rows as is best for a processor.
_AMPLE = 1000**3


class TaskMemory(Value, frozen=True):
    """So many bytes. DuckDB has what is left by rows that are sorted, and by two parts of an input: one that is worked
    on, and one that is read meanwhile. If it is `short`, steps have needed more than it for all keys at once.

    >>> TaskMemory.of("1GB")
    TaskMemory(bytes=1000000000, short=False)
    >>> [TaskMemory.of(text).database for text in ("1GB", "64 MiB")]
    [899336704, 58121070]
    """

    bytes: int
    short: bool = False

    @classmethod
    def of(cls, text: str) -> TaskMemory:
        """As it is written in a command. Raises Refused if it is no amount of memory."""
        match = _AMOUNT.fullmatch(text.strip())
        if match is None:
            what = f"{text!r} is not an amount of memory"
            raise Refused.of(Kind.ARGUMENT, what, "--memory", "write it as 512MB or 2GB", memory=text)
        return cls(
            int(float(match["amount"]) * (1024 if match["binary"] else 1000) ** (" KMGT".index(match["unit"].upper())))
        )

    @property
    def sorted(self) -> int:
        """How many bytes of rows are held to be sorted, before they are spilled."""
        return min(64 << 20, self.bytes // 14)

    @property
    def part(self) -> int:
        """How many bytes of an input are read at once."""
        return min(16 << 20, self.bytes // 32)

    @property
    def database(self) -> int:
        """How many bytes DuckDB holds, before it spills."""
        return self.bytes - self.sorted - 2 * self.part

    def rows(self, most: int, bytes_each: int = 0) -> int:
        """How many rows a batch has, at `most`, if each takes so many bytes at least.

        >>> [TaskMemory.of(text).rows(100_000, each) for text, each in (("1GB", 100), ("1GB", 1000), ("100MB", 0))]
        [100000, 16777, 10000]
        """
        return max(1, min(most, most * self.bytes // _AMPLE, self.part // max(1, bytes_each)))


MEMORY = "1GB"
USUAL = TaskMemory.of(MEMORY)
