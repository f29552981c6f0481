#!/bin/sh
# What deltalake 1.6.6 (delta-rs) does with the deletion vectors of a table: rows that are dead, noted in a file beside the data. It reads them, and writes none.
# Guess: vacuum(full=True) removes files that the newest version does not need, so never a vector that this version names; and RemoveAction(path)
#        takes the file out, as it does where there are no vectors.
# Seen:  a full vacuum takes the file of the vectors in use as one that nobody needs: after it the table cannot be read. Without full=True it stays.
#        RemoveAction has no field for the vector, and for the log a file with its vector is another file than without: the commit
#        succeeds, and all rows are still there. An overwrite by partition removes them, since it names the vector by itself.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1 pyroaring==1.2.0
cd "$home"
cat > run.py <<'PY'
import base64, json, pathlib, struct, uuid, zlib

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import RemoveAction
from pyroaring import BitMap64

RFC = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def made(name):
    """A table of a hundred rows, of which a second version lets ten be dead, as the protocol says."""
    rows = pa.table({"n": pa.array(range(100), pa.int64()), "part": pa.array([0] * 100, pa.int32())})
    write_deltalake(name, rows, partition_by=["part"], configuration={"delta.enableDeletionVectors": "true"})
    log = pathlib.Path(name) / "_delta_log"
    (added,) = [json.loads(line)["add"] for line in (log / f"{0:020}.json").open() if '"add"' in line]
    payload = struct.pack("<I", 1681511377) + BitMap64(range(10)).serialize()
    identity = uuid.uuid4()
    around = struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    (pathlib.Path(name) / f"deletion_vector_{identity}.bin").write_bytes(b"\x01" + around)
    text = base64.b85encode(identity.bytes).translate(bytes.maketrans(RFC, Z85)).decode()
    vector = {"storageType": "u", "pathOrInlineDv": text, "offset": 1, "sizeInBytes": len(payload), "cardinality": 10}
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True, "size": added["size"]}
    actions = [{"commitInfo": {}}, {"remove": removed}, {"add": {**added, "deletionVector": vector}}]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return DeltaTable(name)


def count(table):
    return pa.table(QueryBuilder().register("t", table).execute("SELECT count(*) FROM t").read_all())[0][0].as_py()


table = made("vacuumed")
before, kept = count(table), table.vacuum(0, dry_run=False, enforce_retention_duration=False)
still = count(DeltaTable("vacuumed"))
gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
try:
    after = count(DeltaTable("vacuumed"))
except DeltaError as error:
    after = "not read: " + str(error).rpartition("/")[0].rpartition(": ")[0].rpartition(": ")[2]
print(f"{before} rows; vacuum removed {len(kept)} files, {still} rows; full vacuum removed {len(gone)}: {after}")
assert (before, kept, still, len(gone)) == (90, [], 90, 1) and str(after).startswith("not read"), "it has changed"

table = made("removed")
path = pa.table(table.get_add_actions())["path"][0].as_py()
table.create_write_transaction([RemoveAction(path, True, 1, 1, {"part": "0"})], "append", table.schema(), partition_by=["part"])
still = count(DeltaTable("removed"))
table = DeltaTable("removed")
table.create_write_transaction([], "overwrite", table.schema(), partition_by=["part"], partition_filters=[("part", "=", "0")])
print(f"after RemoveAction {still} rows, after an overwrite {count(DeltaTable('removed'))}")
assert (still, count(DeltaTable("removed"))) == (90, 0), "it has changed"
PY
"$home/venv/bin/python" run.py
