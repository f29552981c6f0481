#!/bin/sh
# Debezium 3.3.1's PartitionRouting, which puts change events into the partition that fields of the row say, among 12; a row's key is its id.
# Guess: with `change.customer` all events of one customer lie in one partition, those of deleted rows and their tombstones too, as do all events of one row,
#        where its key would put them or not; and of two fields the hash is that of both in their order.
# Seen:  no partition is given to tombstones, nor to rows in which a field is null and it is the only one: the producer puts them where the key hashes, so
#        compaction keeps a deleted row's last event for ever, and the deletion is in another partition. An update that changes the field is sent with the
#        new row's, so a row's events lie in two partitions, in no order. Of two fields the hashes are added: ann, bob and bob, ann lie together.
# One field lies by Java's String.hashCode without its sign, or by murmur2 that is seeded otherwise than Kafka's. Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-core</artifactId><version>3.3.1.Final</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.1.1</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
cat > Routed.java <<'JAVA'
import io.debezium.transforms.partitions.PartitionRouting;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.source.SourceRecord;

public class Routed {
    static final Schema KEY = SchemaBuilder.struct().name("orders.Key").field("id", Schema.INT64_SCHEMA).build();
    static final Schema ROW = SchemaBuilder.struct().name("orders.Value").optional().field("id", Schema.INT64_SCHEMA)
        .field("customer", Schema.OPTIONAL_STRING_SCHEMA).field("seller", Schema.OPTIONAL_STRING_SCHEMA).build();
    static final Schema SOURCE = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source").field("table", Schema.STRING_SCHEMA).build();
    static final Schema EVENT = SchemaBuilder.struct().name("orders.Envelope").field("before", ROW).field("after", ROW)
        .field("source", SOURCE).field("op", Schema.STRING_SCHEMA).build();

    static Struct row(String customer, String seller) {
        return new Struct(ROW).put("id", 1L).put("customer", customer).put("seller", seller);
    }

    static SourceRecord event(String op, Struct before, Struct after) {
        Struct value = new Struct(EVENT).put("op", op).put("before", before).put("after", after).put("source", new Struct(SOURCE).put("table", "orders"));
        return new SourceRecord(Map.of(), Map.of(), "orders", null, KEY, new Struct(KEY).put("id", 1L), EVENT, value);
    }

    public static void main(String[] arguments) {
        Struct ann = row("ann", "bob"), cid = row("cid", "bob");
        SourceRecord tombstone = new SourceRecord(Map.of(), Map.of(), "orders", null, KEY, new Struct(KEY).put("id", 1L), null, null);
        for (String hash : new String[] {"java", "murmur"}) {
            var one = routing("change.customer", hash);
            System.out.printf("%s: inserted %s, updated %s, deleted %s, tombstone %s, null %s%n", hash, at(one, event("c", null, ann)),
                at(one, event("u", ann, cid)), at(one, event("d", cid, null)), at(one, tombstone), at(one, event("c", null, row(null, "bob"))));
            var two = routing("change.customer,change.seller", hash);
            System.out.printf("%s: two fields %s, the other way round %s%n", hash, at(two, event("c", null, ann)), at(two, event("c", null, row("bob", "ann"))));
        }
        int kafka = (Utils.murmur2("ann".getBytes(StandardCharsets.UTF_8)) & Integer.MAX_VALUE) % 12;
        System.out.println("ann by String.hashCode: " + ("ann".hashCode() & Integer.MAX_VALUE) % 12 + ", by Kafka's murmur2: " + kafka);
    }

    static PartitionRouting<SourceRecord> routing(String fields, String hash) {
        var made = new PartitionRouting<SourceRecord>();
        made.configure(Map.of("partition.payload.fields", fields, "partition.topic.num", "12", "partition.hash.function", hash));
        return made;
    }

    static Integer at(PartitionRouting<SourceRecord> routing, SourceRecord record) {
        return routing.apply(record).kafkaPartition();
    }
}
JAVA
java -cp 'libs/*' Routed.java > seen 2> java.log || { cat java.log; exit 1; }
cat seen
cat > expected <<'E'
java: inserted 5, updated 10, deleted 10, tombstone null, null null
java: two fields 6, the other way round 6
murmur: inserted 6, updated 2, deleted 2, tombstone null, null null
murmur: two fields 5, the other way round 5
ann by String.hashCode: 5, by Kafka's murmur2: 2
E
diff expected seen > /dev/null || { echo "it has changed"; exit 1; }
