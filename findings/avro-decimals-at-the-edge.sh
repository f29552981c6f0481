#!/bin/sh
# Avro's decimal as bytes: Java's avro 1.12.0, Python's avro 1.12.2 and fastavro 1.13.1, Go's hamba/avro v2.27.0.
# Guess: as all write two's complement in as few bytes as hold it, equal numbers have equal bytes, so that decimal keys lie in one partition.
# Seen:  -1.28 with scale 2, unscaled -128, is 80 in Java and ff80 in the other three; -327.68 is 8000 and ff8000. All numbers -2^(8k-1) differ
#        so, and no other that was tried: the three count a bit for the sign of a number whose leading bit is the sign already.
set -eu
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf "$home"' EXIT
numbers="127 128 -127 -128 -129 -255 -256 -32767 -32768 -32769 0 -1"
cat > "$home/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.0</version></dependency></dependencies></project>
XML
mvn -q -B -f "$home/pom.xml" dependency:copy-dependencies -DoutputDirectory="$home/jars" > "$home/mvn.log" || { cat "$home/mvn.log"; exit 1; }
cat > "$home/Bytes.java" <<'JAVA'
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.HexFormat;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

public class Bytes {
    public static void main(String[] numbers) throws Exception {
        Schema schema = LogicalTypes.decimal(9, 2).addToSchema(Schema.create(Schema.Type.BYTES));
        GenericData data = new GenericData();
        data.addLogicalTypeConversion(new Conversions.DecimalConversion());
        for (String number : numbers) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
            new GenericDatumWriter<Object>(schema, data).write(new BigDecimal(new BigInteger(number), 2), encoder);
            encoder.flush();
            System.out.println(number + " " + HexFormat.of().formatHex(out.toByteArray()));
        }
    }
}
JAVA
java -cp "$home/jars/*" "$home/Bytes.java" $numbers > "$home/java" 2> "$home/java.log" || { cat "$home/java.log"; exit 1; }
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check avro==1.12.2 fastavro==1.13.1
cat > "$home/run.py" <<'PY'
import io
import json
import sys
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
official, fast = avro.schema.parse(json.dumps(kind)), fastavro.parse_schema(kind)
for number in sys.argv[2:]:
    out, value = io.BytesIO(), Decimal(int(number)).scaleb(-2)
    if sys.argv[1] == "avro":
        avro.io.DatumWriter(official).write(value, avro.io.BinaryEncoder(out))
    else:
        fastavro.schemaless_writer(out, fast, value)
    print(number, out.getvalue().hex())
PY
for library in avro fastavro; do "$home/v/bin/python" "$home/run.py" $library $numbers > "$home/$library"; done
mkdir "$home/go"
cat > "$home/go/main.go" <<'GO'
package main

import (
	"fmt"
	"math/big"
	"os"

	"github.com/hamba/avro/v2"
)

func main() {
	schema := avro.MustParse(`{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}`)
	for _, text := range os.Args[1:] {
		number, _ := new(big.Int).SetString(text, 10)
		bytes, err := avro.Marshal(schema, new(big.Rat).SetFrac(number, big.NewInt(100)))
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s %x\n", text, bytes)
	}
}
GO
export GOPATH="$home/gopath" GOFLAGS=-mod=mod
(cd "$home/go" && go mod init seen && go get github.com/hamba/avro/v2@v2.27.0) > "$home/go.log" 2>&1 || { cat "$home/go.log"; exit 1; }
(cd "$home/go" && go run . $numbers) > "$home/hamba"
for library in avro fastavro hamba; do
    echo "$library, where it is not as in Java:"
    diff "$home/java" "$home/$library" > "$home/diff" && { echo "it has changed"; exit 1; }
    sed -n 's/^[<>]/&/p' "$home/diff"
    [ "$(sed -n 's/^> //p' "$home/diff" | tr '\n' ';')" = "-128 04ff80;-32768 06ff8000;" ] || { echo "it has changed"; exit 1; }
done
