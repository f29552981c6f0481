"""Engine: the version of DuckDB that a batch is planned for and run by, and what it answers otherwise than the one
before it."""

from __future__ import annotations

from enum import StrEnum

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
