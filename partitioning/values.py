"""Values: what the words of the design are made of, frozen, compared by their fields and written as JSON."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = ["Document", "Value", "always", "replace"]

T = TypeVar("T")


def always(default: T) -> T:
    """A default that documents hold too, although those of its class omit what has its default."""
    held: T = field(default_factory=lambda: default)
    return held


class Value(Struct, frozen=True, forbid_unknown_fields=True):
    """A frozen value that documents hold. `replace` gives another one with some fields changed."""


class Document(Value, frozen=True, dict=True):
    """A value that is stored by itself. It names its `FORMAT`, such as `coset.plan/3`."""

    FORMAT: ClassVar[str]
