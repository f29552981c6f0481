"""Marks: the columns in which steps keep when a row happened and what it is of. No expression of a pipeline has such a
name by chance, and no result table has one."""

from __future__ import annotations

# When a row happened, in microseconds: of a window its start, of a life of a key its last record.
TIME = "@time"
# When a record of a session happened; its time is the start of the window in which the session has to be.
AT = "@at"
# When a life of a key began.
FROM = "@from"
# Of how many records a row is.
RECORDS = "@records"
# In which batch a record came, and before which time those that wait for a partner were over then.
IN = "@in"
OVER = "@over"
# By what a record is the same as another one of its key.
IDENTITY = "@identity"
# How often a row comes in a batch, or goes if it is below 0; of rows that are kept, how often it is there.
CHANGE = "@change"
_WORDS = {TIME: "time", AT: "happened at", FROM: "lives since", RECORDS: "records", IDENTITY: "identity"}
_WORDS |= {IN: "came in batch", OVER: "over then", CHANGE: "times"}
_TIMES = {TIME, AT, FROM, OVER}


def in_words(column: str, *, of_life: bool = False) -> str:
    """What a column is called where people read it: of a row `of_life` the time is when the key's last record happened.

    >>> in_words("@time"), in_words("@time", of_life=True), in_words("amount")
    ('time', 'last record at', 'amount')
    """
    return "last record at" if of_life and column == TIME else _WORDS.get(column, column)


def is_time(column: str) -> bool:
    """Whether a column has microseconds since 1970.

    >>> is_time("@from"), is_time("@records")
    (True, False)
    """
    return column in _TIMES
