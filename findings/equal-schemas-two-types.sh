#!/bin/sh
# Columns of bytes with GeoArrow's name beside them, without GeoArrow's package: DuckDB 2.0.1, PyArrow 26.0.1.
# Guess: two PyArrow schemas that are equal, and hash alike, make DuckDB relations of the same types.
# Seen:  one is BLOB, the other GEOMETRY, for which octet_length() is an error. Equality leaves out the metadata of fields, and DuckDB goes by it,
#        within lists too; schema.remove_metadata() leaves it there. So what is remembered by schema (lru_cache, a dict) gives one for the other.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import duckdb
import pyarrow as pa

plain = pa.schema([("g", pa.binary()), ("l", pa.list_(pa.binary()))])
said = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"}
named = pa.schema([pa.field("g", pa.binary(), metadata=said), pa.field("l", pa.list_(pa.field("item", pa.binary(), metadata=said)))])
assert plain == named and hash(plain) == hash(named)
point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
connection = duckdb.connect()
types, lengths = [], []
for schema in (plain, named.remove_metadata()):
    arrays = [pa.array([point], schema.field(0).type), pa.array([[point]], schema.field(1).type)]
    rows = connection.from_arrow(pa.Table.from_arrays(arrays, schema=schema))
    types.append([str(kind) for kind in rows.types])
    try:
        lengths.append(rows.project("octet_length(g)").fetchall())
    except duckdb.Error as error:
        lengths.append(str(error).splitlines()[0])
print(types, lengths)
assert types == [["BLOB", "BLOB[]"], ["GEOMETRY", "GEOMETRY[]"]], "it has changed"
assert lengths[0] == [(21,)] and "octet_length(GEOMETRY)" in lengths[1], "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
