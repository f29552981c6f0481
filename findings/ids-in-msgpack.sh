#!/bin/sh
# One id as a MessagePack key: msgpack 1.2.4 (Python), @msgpack/msgpack 3.1.3 and msgpackr 2.1.4 (Node), and for Go vmihailenco/msgpack
# v5.4.1, tinylib/msgp v1.6.5 and ugorji/go/codec v1.3.2, all by default.
# Guess: the specification tells serialisers to take the shortest form, so equal whole numbers have equal bytes, and lie in one partition.
# Seen:  5000000000 has three forms. Python, @msgpack/msgpack and vmihailenco's `int` write it unsigned (cf …), his `int64`, msgp and
#        ugorji signed (d3 …), and msgpackr from 2^32 on as a double (cb …), which Python reads as 5000000000.0. 300 has three as well:
#        cd012c in Python, in Node and of an `int`, d1012c by msgp and ugorji, nine bytes of an `int64`. Up to 127 only `int64` differs.
set -eu
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf "$home"' EXIT
cd "$home"
python3 -m venv v
v/bin/pip install --quiet msgpack==1.2.4
echo '{"private": true, "type": "module"}' > package.json
npm install --silent --no-audit --no-fund @msgpack/msgpack@3.1.3 msgpackr@2.1.4
mkdir go
cat > go/go.mod <<'E'
module probe

go 1.24

require (
	github.com/tinylib/msgp v1.6.5
	github.com/ugorji/go/codec v1.3.2
	github.com/vmihailenco/msgpack/v5 v5.4.1
)
E
cat > go/main.go <<'E'
package main

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
	"github.com/ugorji/go/codec"
	"github.com/vmihailenco/msgpack/v5"
)

func main() {
	for _, id := range []int64{1, 300, 5000000000} {
		wide, _ := msgpack.Marshal(id)
		plain, _ := msgpack.Marshal(int(id))
		var handle codec.MsgpackHandle
		var other []byte
		codec.NewEncoderBytes(&other, &handle).MustEncode(id)
		fmt.Printf("vmihailenco-int64 %d %x\n", id, wide)
		fmt.Printf("vmihailenco-int %d %x\n", id, plain)
		fmt.Printf("msgp %d %x\n", id, msgp.AppendInt64(nil, id))
		fmt.Printf("ugorji %d %x\n", id, other)
	}
}
E
(cd go && go mod tidy 2> /dev/null && go run .) > seen
cat > probe.js <<'E'
import { encode } from "@msgpack/msgpack";
import { pack } from "msgpackr";

for (const id of [1, 300, 5000000000]) {
  console.log(`@msgpack ${id} ${Buffer.from(encode(id)).toString("hex")}`);
  console.log(`msgpackr ${id} ${pack(id).toString("hex")}`);
}
E
node probe.js >> seen
cat > probe.py <<'E'
import msgpack

seen = {}
for line in open("seen"):
    library, number, written = line.split()
    seen[library, int(number)] = bytes.fromhex(written)
for number in (1, 300, 5000000000):
    seen["python", number] = msgpack.packb(number)
for (library, number), written in sorted(seen.items(), key=lambda each: each[0][1]):
    print(f"{number:>10}  {library:17}  {written.hex():18}  {msgpack.unpackb(written)!r}")
forms = {number: sorted({written.hex() for (_, of), written in seen.items() if of == number}) for _, number in seen}
assert forms == {
    1: ["01", "d30000000000000001"],
    300: ["cd012c", "d1012c", "d3000000000000012c"],
    5000000000: ["cb41f2a05f20000000", "cf000000012a05f200", "d3000000012a05f200"],
}, "it has changed"
assert isinstance(msgpack.unpackb(seen["msgpackr", 5000000000]), float), "it has changed"
E
v/bin/python probe.py
