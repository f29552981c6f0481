#!/bin/sh
# What deltalake 1.6.6 (delta-rs) demands of a table's readers once delta.enableDeletionVectors is true.
# Guess: the feature deletionVectors, and nothing else.
# Seen:  variantType too, though no column is a variant: a reader without variants has to refuse the table. alter.add_feature(DeletionVectors)
#        demands vectors alone, but to set the property after it adds variantType again.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
cd "$home"
cat > run.py <<'PY'
import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures

schema, asked = Schema.from_arrow(pa.schema([("n", pa.int64())])), {"delta.enableDeletionVectors": "true"}
seen = {"created": sorted(DeltaTable.create("created", schema, configuration=asked).protocol().reader_features)}
table = DeltaTable.create("added", schema)
table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
seen["added"] = sorted(table.protocol().reader_features)
table.alter.set_table_properties(asked)
seen["set"] = sorted(table.protocol().reader_features)
print(seen)
both = ["deletionVectors", "variantType"]
assert seen == {"created": both, "added": ["deletionVectors"], "set": both}, "it has changed"
PY
"$home/venv/bin/python" run.py
