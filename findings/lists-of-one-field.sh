#!/bin/sh
# Columns by parquet-avro 1.18.1 as it is set by default, and as Kafka Connect's sinks have it: an array of records with one field, and an enum.
# Read by DuckDB 2.0.1, PyArrow 26.0.1, Polars 2.1.0.
# Guess: all three read a list of structs, and text: the old way of writing lists has its rules in Parquet's specification, by which
#        a group that is called `array` is the element.
# Seen:  DuckDB takes the records away: it has a list of text, though structs where they have two fields or the file was written in the new way, so one
#        more field in the producer's schema is another type for a query. PyArrow and Polars have structs in all three. The enum is text in
#        DuckDB and Polars, and bytes in PyArrow.
# Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.parquet</groupId><artifactId>parquet-avro</artifactId><version>1.18.1</version></dependency>
<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-api</artifactId><version>3.4.2</version></dependency>
<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-runtime</artifactId><version>3.4.2</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
cat > Orders.java <<'JAVA'
import java.nio.file.Path;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.io.LocalOutputFile;

public class Orders {
    public static void main(String[] arguments) throws Exception {
        write("one.parquet", "", new Configuration());
        write("two.parquet", ", {\"name\": \"many\", \"type\": \"int\", \"default\": 1}", new Configuration());
        Configuration anew = new Configuration();
        anew.setBoolean("parquet.avro.write-old-list-structure", false);
        write("new.parquet", "", anew);
    }

    static void write(String file, String more, Configuration settings) throws Exception {
        Schema schema = new Schema.Parser().parse("""
            {"type": "record", "name": "Order", "fields": [
              {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}},
              {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
                {"name": "sku", "type": "string"}%s]}}}]}""".formatted(more));
        GenericRecord order = new GenericData.Record(schema), item = new GenericData.Record(schema.getField("items").schema().getElementType());
        item.put("sku", "a1");
        if (!more.isEmpty()) item.put("many", 1);
        order.put("status", new GenericData.EnumSymbol(schema.getField("status").schema(), "NEW"));
        order.put("items", List.of(item));
        try (var writer = AvroParquetWriter.<GenericRecord>builder(new LocalOutputFile(Path.of(file))).withSchema(schema).withConf(settings).build()) {
            writer.write(order);
        }
    }
}
JAVA
java -cp 'libs/*' Orders.java > java.log 2>&1 || { cat java.log; exit 1; }
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0
cat > run.py <<'PY'
import duckdb
import polars
import pyarrow.parquet

READERS = {
    "duckdb": lambda file: dict(zip(("status", "items"), duckdb.sql(f"SELECT status, items FROM '{file}'").fetchall()[0])),
    "pyarrow": lambda file: pyarrow.parquet.read_table(file).to_pylist()[0],
    "polars": lambda file: polars.read_parquet(file).row(0, named=True),
}
seen = {}
for name, read in READERS.items():
    rows = [read(f"{file}.parquet") for file in ("one", "two", "new")]
    seen[name] = (rows[0]["status"], *(row["items"] for row in rows))
    print(f"{name:8} enum {seen[name][0]!r}; one field {seen[name][1]}, two {seen[name][2]}, in the new way {seen[name][3]}")
one, two = [{"sku": "a1"}], [{"sku": "a1", "many": 1}]
assert seen["duckdb"] == ("NEW", ["a1"], two, one), "it has changed"
assert seen["polars"] == ("NEW", one, two, one), "it has changed"
assert seen["pyarrow"] == (b"NEW", one, two, one), "it has changed"
PY
v/bin/python run.py
