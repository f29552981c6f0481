"""Composite keys: keys of several columns, as the one column of text by which their records are placed and met.

That column is called `(customer, country)` and holds the values as a JSON array: `["ann","DE"]`. A stream whose
producers write a JSON object of one column has such a key of it alone, `(customer,)`. It goes the way of every other
key of text; only here, in `Flow` and in the column check is it known to be made of others. No result table has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.placement import JSON, OPAQUE, json_fields

_WHOLE = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")} | {
    "INTEGER",
    "UINTEGER",
}
# All producers write them alike in JSON. Floats, decimals, times and identifiers they do not.
_ALIKE_IN_JSON = {"a whole number", "VARCHAR", "BOOLEAN"}
_OTHERS = {"VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID"}


def composite(columns: Sequence[str]) -> str:
    """The name of the key column of these columns.

    >>> composite(["customer", "country"]), composite(["customer"])
    ('(customer, country)', '(customer,)')
    """
    return f"({', '.join(columns)}{',' if len(columns) == 1 else ''})"


def key_parts(key: str) -> tuple[str, ...]:
    """The columns that a key column is made of; none of one that is not.

    >>> key_parts("(customer, country)"), key_parts("(customer,)"), key_parts("customer")
    (('customer', 'country'), ('customer',), ())
    """
    if not (key.startswith("(") and key.endswith(")")):
        return ()
    return (key[1:-2],) if key.endswith(",)") else tuple(key[1:-1].split(", ")) if ", " in key else ()


def key_columns(key: str) -> tuple[str, ...]:
    """The columns that records and rows of result tables have of a key: those that it is made of, or the key itself.

    >>> key_columns("(customer, country)"), key_columns("customer")
    (('customer', 'country'), ('customer',))
    """
    return key_parts(key) or (key,)


def canonical(columns: Sequence[str]) -> str:
    """The SQL of the key: a JSON array of the values, without spaces. NULL is `null`, a value like others.

    Equal values have the same text, and different ones of the same types another: JSON ends a text by itself, and of
    all types that `kind` allows DuckDB writes each value in one way.

    >>> print(canonical(["customer", "country"]))
    json_array("customer", "country")::VARCHAR
    """
    return f"json_array({', '.join(map(quote, columns))})::VARCHAR"


def kind(column_type: str) -> str | None:
    """What values of a DuckDB type are as parts of a key: those of one kind meet. None if they cannot be parts.

    >>> kind("BIGINT"), kind("VARCHAR"), kind("DOUBLE")
    ('a whole number', 'VARCHAR', None)
    """
    if column_type in _WHOLE:
        return "a whole number"
    return column_type if column_type in _OTHERS or column_type.startswith("DECIMAL(") else None


def bad_part(column: str, column_type: str, placed_by: str, where: str) -> Finding | None:
    """What is wrong with the type of a column of a stream's own key, whose records are placed by this hash."""
    what = f"{column} is {column_type}"
    if kind(column_type) is None:
        then = "land it as text, a whole number, DECIMAL, DATE or TIMESTAMP"
        what = f"{what}, which no key of several columns can have"
        return Finding.of(Kind.STREAM_COLUMNS, what, where, then, column=column, type=column_type)
    if json_fields(placed_by) and kind(column_type) not in _ALIKE_IN_JSON:
        what = f"{what}, which producers write in JSON in several ways"
        then = (
            "declare how they place keys: hash='package.module:function', which is given the values as a JSON array, "
            f"or hash={OPAQUE!r}"
        )
        return Finding.of(Kind.STREAM_COLUMNS, what, where, then, column=column, type=column_type)
    return None


def bad_parts(columns: Sequence[str], where: str, least: int = 2) -> Iterator[Finding]:
    """Findings for the columns of a new key, of which there have to be so many."""
    if len(columns) < least:
        what = f"a key of several columns is named with {len(columns)}"
        then = f'name its columns, or one as text; one in brackets is a stream\'s of key_format="{JSON}"'
        yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, columns=list(columns))
    for column in sorted({column for column in columns if columns.count(column) > 1}):
        what = f"the key has the column {column!r} twice"
        yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, "name each column once", column=column)
    for column in columns:
        if not column or set(column) & set("(),"):
            what = f"{column!r} cannot be one of several key columns"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, "give it a plain name with AS", column=column)
