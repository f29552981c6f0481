"""The values that functions are asked with, as literals of SQL, by type; and by the names of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def _typed(kind: str, *texts: str) -> list[str]:
    return [f"{text}::{kind}" for text in ("NULL", *texts)]


def _whole(kind: str, bits: int, *, signed: bool) -> list[str]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    signs = ("'-1'", "'-7'") if signed else ()
    return _typed(kind, "'0'", "'1'", "'3'", "'100'", *signs, f"'{most}'", f"'{least}'")


_FLOATS = ("'0'", "'-0.0'", "'1'", "'2.5'", "'-1.5'", "'0.1'", "'1234567.891'", "'nan'", "'inf'", "'-inf'", "'1e300'")
_TEXTS = (
    *("''", "'a'", "'Hello, World'", "'2'", "' 1.5 '", "'2024-02-29'", "'ﬁancé'", "'e\u0301'", "'é'"),
    *(
        "'日本語テキスト'",
        "'👩\u200d👩\u200d👧'",
        "'ß'",
        "'İi'",
        "'a,b,,c'",
        "'[1, 2]'",
        "'{\"a\": 1}'",
        "'true'",
        "'\t\n'",
    ),
)
_DATES = ("'2024-02-29'", "'1970-01-01'", "'1969-12-31'", "'0001-01-01'", "'9999-12-31'", "'infinity'", "'2021-01-03'")
_TIMES = (
    "'2024-02-29 23:59:59.999999'",
    "'1970-01-01 00:00:00'",
    "'1969-12-31 23:59:59.5'",
    "'0044-03-15 (BC) 12:00:00'",
)
_STAMPS = (*_TIMES, "'9999-12-31 23:59:59'", "'infinity'", "'-infinity'", "'2021-03-28 01:30:00'")
_NANO = ("'2024-02-29 23:59:59.999999999'", "'1970-01-01 00:00:00'", "'1969-12-31 23:59:59.5'")
_JSON = (
    *(
        "'null'",
        "'1'",
        "'-1.50'",
        "'\"a\"'",
        "'[]'",
        '\'[1, "b", null, {"c": 2.5}]\'',
        '\'{"a": {"b": [1, 2]}, "c": "é"}\'',
    ),
    *('\'{"a": 1, "a": 2}\'', "'12345678901234567890123'", "'true'"),
)

BY_TYPE: Mapping[str, Sequence[str]] = {
    "BOOLEAN": _typed("BOOLEAN", "'true'", "'false'"),
    "TINYINT": _whole("TINYINT", 8, signed=True),
    "SMALLINT": _whole("SMALLINT", 16, signed=True),
    "INTEGER": _whole("INTEGER", 32, signed=True),
    "BIGINT": _whole("BIGINT", 64, signed=True),
    "HUGEINT": _whole("HUGEINT", 128, signed=True),
    "UTINYINT": _whole("UTINYINT", 8, signed=False),
    "USMALLINT": _whole("USMALLINT", 16, signed=False),
    "UINTEGER": _whole("UINTEGER", 32, signed=False),
    "UBIGINT": _whole("UBIGINT", 64, signed=False),
    "UHUGEINT": _whole("UHUGEINT", 128, signed=False),
    "BIGNUM": _typed("BIGNUM", "'0'", "'1'", "'-1'", "'123456789012345678901234567890123456789012345'"),
    "DECIMAL": [
        *_typed("DECIMAL(9,2)", "'0'", "'1'", "'2.50'", "'-1.55'", "'0.05'", "'9999999.99'"),
        "12345678901234567890.123456789::DECIMAL(38,9)",
    ],
    "FLOAT": _typed("FLOAT", *_FLOATS[:-1]),
    "DOUBLE": _typed("DOUBLE", *_FLOATS),
    "VARCHAR": ["NULL::VARCHAR", *_TEXTS],
    "BLOB": _typed("BLOB", "''", "'a'", "'\\x00\\xFF'", "'abcdef'"),
    "BIT": _typed("BIT", "'0'", "'1'", "'10110'", "'000000001'"),
    "DATE": _typed("DATE", *_DATES),
    "TIME": _typed("TIME", "'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "TIME_NS": _typed("TIME_NS", "'00:00:00'", "'23:59:59.999999999'"),
    "TIME WITH TIME ZONE": _typed("TIMETZ", "'00:00:00+00'", "'23:59:59.5+05:30'", "'12:00:00-08'"),
    "TIMESTAMP": _typed("TIMESTAMP", *_STAMPS),
    "TIMESTAMP_S": _typed("TIMESTAMP_S", "'2024-02-29 23:59:59'", "'1969-12-31 23:59:59'"),
    "TIMESTAMP_MS": _typed("TIMESTAMP_MS", "'2024-02-29 23:59:59.999'", "'1969-12-31 23:59:59.5'"),
    "TIMESTAMP_NS": _typed("TIMESTAMP_NS", *_NANO),
    "TIMESTAMP WITH TIME ZONE": _typed("TIMESTAMPTZ", *_STAMPS),
    "INTERVAL": _typed("INTERVAL", "'0 days'", "'1 month 2 days 03:04:05.6'", "'-1 year'", "'36 hours'", "'7 days'"),
    "UUID": _typed("UUID", "'00000000-0000-0000-0000-000000000000'", "'0190163d-8694-739b-aea5-966c26f8ad91'"),
    "JSON": _typed("JSON", *_JSON),
    "GEOMETRY": _typed("GEOMETRY", "'POINT (1 2)'", "'LINESTRING (0 0, 1 1)'"),
    "STRUCT": ["NULL::STRUCT(a INTEGER, b VARCHAR)", "{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': 'é'}"],
    "MAP(K, V)": ["NULL::MAP(VARCHAR, INTEGER)", "MAP {'a': 1, 'b': NULL}", "MAP {}"],
    "UNION": ["union_value(a := 1)", "union_value(b := 'x')"],
    "ANY[]": [
        *("NULL::INTEGER[]", "[]::INTEGER[]", "[1, NULL, 3, 3, -2]", "['b', '', 'é', NULL, 'a']", "[[1], [], NULL]"),
        *("['nan'::DOUBLE, 1.5, '-inf'::DOUBLE, -0.0]", "[{'a': 1}, {'a': NULL}]", "['2024-02-29'::DATE]"),
    ],
    "VARCHAR[]": ["NULL::VARCHAR[]", "[]::VARCHAR[]", "['a', '', NULL, 'é']", "['$.a', '$[0]']"],
    "DOUBLE[]": [
        "NULL::DOUBLE[]",
        "[]::DOUBLE[]",
        "[1.0, -2.5, 0.0]::DOUBLE[]",
        "[0.5, 'nan', 'inf']::DOUBLE[]",
        "[0.25, 0.5]::DOUBLE[]",
    ],
    "FLOAT[]": ["NULL::FLOAT[]", "[]::FLOAT[]", "[1.0, -2.5, 0.0]::FLOAT[]", "[0.5, 'nan', 'inf']::FLOAT[]"],
    "BIGINT[]": ["NULL::BIGINT[]", "[]::BIGINT[]", "[2, 1]::BIGINT[]"],
    "BOOLEAN[]": ["NULL::BOOLEAN[]", "[true, false, true]"],
    "FLOAT[3]": ["[1, 2, 3]::FLOAT[3]", "[-1, 0, 0.5]::FLOAT[3]"],
    "DOUBLE[3]": ["[1, 2, 3]::DOUBLE[3]", "[-1, 0, 0.5]::DOUBLE[3]"],
    "LAMBDA": ["lambda x: x IS NULL", "lambda x, y: x || y", "lambda x, y: x + y"],
}
_ANY = {
    *("BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "DECIMAL", "DOUBLE", "VARCHAR", "BLOB", "BIT", "DATE", "TIME"),
    *("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID", "JSON", "STRUCT", "MAP(K, V)", "ANY[]"),
}
# What parameters of open types are asked with where there are several.
OF_SEVERAL = ("INTEGER", "DECIMAL", "DOUBLE", "VARCHAR", "TIMESTAMP", "STRUCT", "ANY[]")
# What a parameter of an open type is asked with.
OPEN: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("ANY", "T", "V"), tuple(sorted(_ANY))),
    "K": ["VARCHAR"],
    **dict.fromkeys(("T[]", "K[]", "V[]", "T[][]", "ANY[]", "STRUCT(K, V)[]", "TUPLE(K, V)[]"), ("ANY[]",)),
    "FLOAT[ANY]": ["FLOAT[3]"],
    "DOUBLE[ANY]": ["DOUBLE[3]"],
}
# What a macro's parameters, of no stated type, are all of.
OF_MACROS = ("INTEGER", "DOUBLE", "VARCHAR", "TIMESTAMP", "ANY[]")
_PARTS = (
    "'year'",
    "'quarter'",
    "'week'",
    "'isodow'",
    "'epoch'",
    "'millennium'",
    "'yearweek'",
    "'era'",
    "'day'",
    "'hour'",
)
_FORMATS = ("'%Y-%m-%d %H:%M:%S.%f'", "'%a, %-d %B %y %I %p %j %U %W %z %Z %%'", "'%d.%m.%Y'", "'%G-W%V-%u'", "'x'")
# Texts that mean something, by what the parameter is called.
BY_NAME: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("part", "ts_part", "partcode", "unit"), _PARTS),
    "format": (*_FORMATS, "'{} {:>6}|{:.2f}'", "'%s %05d|%.2f'", "'{:,}'"),
    **dict.fromkeys(("regex", "pattern"), ("''", "'a'", "'[a-z]+'", "'(.)(.*)'", "'\\p{L}'", "'%'", "'H_l%'", "'é'")),
    "path": ("'$'", "'a'", "'$.a.b[0]'", "'/a/b/1'", "'$[1]'", "'$.*'", "''"),
    "function_name": ("'sum'", "'max'", "'count'", "'list'", "'first'", "'x'"),
    "options": ("''", "'i'", "'g'", "'gi'"),
    "sort_order": ("'ASC'", "'desc'", "'x'"),
    "null_order": ("'NULLS FIRST'", "'nulls last'"),
    "collator": ("'de'", "'sv'", "'en_US'"),
    "separator": ("''", "','", "'é'", "', '"),
    "timezone": ("'UTC'", "'Europe/Berlin'", "'America/New_York'"),
}
# Syntax that is no call of a function, with the name under which its differences are listed.
SYNTAX: Sequence[tuple[str, str, Sequence[str]]] = [
    *((op, f"{{}} {op} {{}}", list(BY_TYPE)) for op in ("=", "<")),
    ("IN", "{} IN ({}, NULL)", list(BY_TYPE)),
    ("BETWEEN", "{0} BETWEEN {1} AND {0}", list(BY_TYPE)),
    *((op, f"{{}} {op} {{}}", ["VARCHAR"]) for op in ("LIKE", "ILIKE", "SIMILAR TO", "GLOB")),
]
COLLATIONS = ("NOCASE", "NOACCENT", "NFC", "de", "sv", "en_US", "ja")
