"""How a batch writes a result table: the modes, with what planning, running, proof and pages ask of each."""

from __future__ import annotations

from enum import StrEnum

# How users call a mode that tables do not know: they are appended to what comes and what goes.
CHANGELOG = "changelog"
# Its column that says what became of a row, in the words of Delta's change data feed.
CHANGE_TYPE, COMES, GOES = "_change_type", "insert", "delete"


def left_of(log: str, come: str = COMES, go: str = GOES) -> str:
    """The SELECT of the rows of a changelog that have come and not gone, each as often as it is there.

    >>> print(left_of("moves").replace(" EXCEPT", "\\nEXCEPT"))
    SELECT * EXCLUDE (_change_type, _batch, _task) FROM moves WHERE _change_type = 'insert'
    EXCEPT ALL SELECT * EXCLUDE (_change_type, _batch, _task) FROM moves WHERE _change_type = 'delete'
    """
    rows = f"SELECT * EXCLUDE ({CHANGE_TYPE}, _batch, _task) FROM {log} WHERE {CHANGE_TYPE} ="
    return f"{rows} '{come}' EXCEPT ALL {rows} '{go}'"


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
