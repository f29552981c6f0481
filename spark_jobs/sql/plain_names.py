"""Plain names: what the columns of a table can be called, and the calls of a flow that rename the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from partitioning.model.composite_key import key_columns
from partitioning.model.graph import quote
from partitioning.model.placement import KeyFormat

# Spark and other readers of Delta tables refuse these characters in a column's name.
_IN_NONE = set(" ,;{}()\n\t=")


def is_plain(name: str) -> bool:
    """Whether a table can have a column of this name."""
    return not _IN_NONE & set(name)


def renaming(columns: Sequence[str], key: str, key_format: KeyFormat) -> str:
    """The calls behind which all columns of a flow have plain names; nothing if one of several columns of its key has
    none.

    >>> print(renaming(["id", "a b"], "id", KeyFormat.LONG))
    .select('* EXCLUDE ("id") RENAME ("a b" AS "a_b")')
    >>> print(renaming(["my id", "n"], "my id", KeyFormat.LONG))
    .rekey('my_id', sql='"my id"', key_format='long').select('* EXCLUDE ("my_id", "my id")')
    """
    plain, keys, rekey = dict(_plain(columns)), list(dict.fromkeys((key, *key_columns(key)))), ""
    if key in plain:
        of_format = "" if key_format is KeyFormat.STRING else f", key_format={str(key_format)!r}"
        rekey, keys = f".rekey({plain[key]!r}, sql={quote(key)!r}{of_format})", [plain.pop(key), key]
    elif plain.keys() & keys:
        return ""
    others = ", ".join(f"{quote(name)} AS {quote(made)}" for name, made in plain.items())
    selected = f"* EXCLUDE ({', '.join(map(quote, keys))})" if key else "*"
    selected += f" RENAME ({others})" if others else ""
    return f"{rekey}.select({selected!r})"


def _plain(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A plain name for each column that has none."""
    taken = {name.lower() for name in columns}
    for name in columns:
        if not is_plain(name):
            made = re.sub(r"\W+", "_", name).strip("_") or "column"
            while made.lower() in taken:
                made += "_"
            taken.add(made.lower())
            yield name, made
