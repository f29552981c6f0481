"""How a batch writes a result table: the modes, with what planning, running, proof and pages ask of each."""

from __future__ import annotations

from enum import StrEnum

# How users call a mode that tables do not know: they are appended to what comes and what goes.
CHANGELOG = "changelog"


class Mode(StrEnum):
    """What a batch does to a result table's rows: it adds to them, replaces the rows of its keys, or replaces all.

    >>> [mode.value for mode in Mode if mode.keeps], Mode.UPSERT.by_key, Mode.REPLACE.happens
    (['append', 'upsert'], True, 'is replaced')
    """

    APPEND = "append"
    UPSERT = "upsert"
    REPLACE = "replace"

    @property
    def keeps(self) -> bool:
        """Whether rows of earlier batches stay."""
        return self is not Mode.REPLACE

    @property
    def by_key(self) -> bool:
        """Whether the table has one row for each key, in the partition of its residue, and takes what changes of it."""
        return self is Mode.UPSERT

    @property
    def only_adds(self) -> bool:
        """Whether each row is of one batch, and no later batch takes it away."""
        return self is Mode.APPEND

    @property
    def happens(self) -> str:
        """What happens to the table where no step tells which rows go."""
        match self:
            case Mode.APPEND:
                return "is appended to"
            case Mode.UPSERT:
                return "is written anew"
            case Mode.REPLACE:
                return "is replaced"

    @property
    def swap(self) -> str:
        """What a swap does to the table."""
        match self:
            case Mode.APPEND:
                return "exchanges the rows of these batches"
            case Mode.UPSERT:
                return "exchanges all rows, if the state changes"
            case Mode.REPLACE:
                return "exchanges all rows, if the last batch is among them"


class Updates(StrEnum):
    """How a batch changes rows of a table by key: it writes the files that hold them again (copy on write), or the
    new rows beside them, and notes which rows are dead (merge on read)."""

    REWRITE = "rewrite"
    BESIDE = "beside"
