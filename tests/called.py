"""Every scalar function that DuckDB lists, called with values of its types. As a program: what they give."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice, product

import duckdb

from coset.sources.databases import connect_to_ask

# What a function is called with, by type; whatever is no type of this list is a small number.
_TIME = "2020-02-29 23:30:00"
_VALUES: Mapping[str, tuple[str, ...]] = {
    "BIT": ("'101'::BIT",),
    "BLOB": ("'ab'::BLOB",),
    "BOOLEAN": ("true",),
    "DATE": ("DATE '2020-02-29'",),
    "INTERVAL": ("INTERVAL '1 day'",),
    "JSON": ("""'{"a": 1}'::JSON""",),
    "TIME": ("TIME '12:30:00'",),
    "TIME WITH TIME ZONE": ("'12:30:00+00'::TIMETZ",),
    "TIME_NS": ("'12:30:00'::TIME_NS",),
    "UUID": ("'00000000-0000-4000-8000-000000000001'::UUID",),
    # A name of a zone, of a setting, of a part of a time, a form, and a text.
    "VARCHAR": ("'Europe/Berlin'", "'threads'", "'day'", "'%Y'", "'12:30'"),
    "VARCHAR[]": ("['year', 'month']",),
    **{kind: (f"2.5::{kind}",) for kind in ("DECIMAL", "DOUBLE", "FLOAT")},
    **{kind: (f"'{_TIME}'::{kind}",) for kind in ("TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP_S")},
    **{kind: (f"'{_TIME}+00'::{kind}",) for kind in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")},
}
# Of the calls of one function with the same types.
_MOST_CALLS = 5
# What the text of an error begins with.
FAILED = "failed: "
_LISTED = """
    SELECT DISTINCT lower(function_name), parameter_types, stability FROM duckdb_functions()
    WHERE function_type = 'scalar' AND NOT regexp_matches(function_name, '^(icu_)?collate_') ORDER BY ALL
"""


def calls() -> Iterator[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    """The functions with the types that they take: each with its stability in DuckDB's words, and some calls."""
    with connect_to_ask() as connection:
        for name, types, stability in connection.execute(_LISTED).fetchall():
            given = product(*(_VALUES.get(kind, ("2",)) for kind in types))
            texts = tuple(f'"{name}"({", ".join(values)})' for values in islice(given, _MOST_CALLS))
            yield name, tuple(types), stability, texts


def results() -> Mapping[str, str]:
    """What each call gives, as text, or its error."""
    with connect_to_ask() as connection:

        def given(text: str) -> str:
            try:
                return repr(connection.execute(f"SELECT ({text})::VARCHAR").fetchall())
            except duckdb.Error as error:
                return f"{FAILED}{error}"

        return {text: given(text) for *_, texts in calls() for text in texts}


if __name__ == "__main__":
    json.dump(results(), sys.stdout)
