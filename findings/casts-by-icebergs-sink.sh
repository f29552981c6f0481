#!/bin/sh
# What Iceberg's own sink for Kafka Connect 1.10.1 makes of a record's value where the table's column has another type.
# Guess: it refuses what the column cannot hold, or makes it null; it takes a time's zone into account. Its tables are typed, and it has an error for a
#        value that cannot be converted.
# Seen:  only some text is refused. 5000000000 in a column of int is 705032704, 1.9 in one of long 1, NaN 0, 2^64-1 as a BigDecimal -1. Decimals are rounded
#        to the column's scale, and of 12 digits in decimal(9, 2) all stay. 12:00+05:00 in a timestamp is 12:00, without the zone; seconds are taken for
#        milliseconds (1970), milliseconds in a date for days (the year 2038070). "yes" and "1" are false. A name that no column has is left out.
# Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-kafka-connect</artifactId><version>1.10.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.1.1</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
mkdir out
# What converts is seen within its package alone.
cat > Converted.java <<'JAVA'
package org.apache.iceberg.connect.data;

import java.math.BigDecimal;
import java.util.Map;
import org.apache.iceberg.Schema;
import org.apache.iceberg.catalog.*;
import org.apache.iceberg.connect.IcebergSinkConfig;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.types.*;

public class Converted {
    public static void main(String[] arguments) {
        var catalog = new InMemoryCatalog();
        catalog.initialize("lake", Map.of());
        catalog.createNamespace(Namespace.of("shop"));
        var settings = new IcebergSinkConfig(Map.of("name", "sink", "topics", "orders", "iceberg.tables", "shop.orders", "iceberg.catalog.catalog-impl", "none"));
        Object[][] cases = {
            {Types.IntegerType.get(), 5000000000L, 1.9, Double.NaN, 1e300, "5000000000"},
            {Types.LongType.get(), 1.9, new BigDecimal("18446744073709551615")},
            {Types.DecimalType.of(9, 2), 1.005, "12345678901.5"},
            {Types.TimestampType.withoutZone(), "2026-11-30T12:00:00+05:00", 1796040000L},
            {Types.DateType.get(), 1796040000000L, "2026-11-30T12:00:00Z"},
            {Types.BooleanType.get(), "TRUE", "yes", "1", 1},
        };
        for (int number = 0; number < cases.length; number++) {
            var schema = new Schema(Types.NestedField.optional(1, "v", (Type) cases[number][0]));
            var convert = new RecordConverter(catalog.createTable(TableIdentifier.of("shop", "t" + number), schema), settings);
            for (int each = 1; each < cases[number].length; each++) {
                String is;
                try {
                    is = String.valueOf(convert.convert(Map.of("v", cases[number][each], "w", 1)).getField("v"));
                } catch (RuntimeException error) {
                    is = "refused";
                }
                System.out.println(cases[number][each] + " in " + cases[number][0] + " is " + is);
            }
        }
    }
}
JAVA
javac -cp 'libs/*' -d out Converted.java && java -cp 'out:libs/*' org.apache.iceberg.connect.data.Converted > seen 2> java.log || { cat java.log; exit 1; }
cat seen
expected="705032704;1;0;2147483647;refused;1;-1;1.01;12345678901.50;2026-11-30T12:00;1970-01-21T18:54;+2038070-01-18;refused;true;false;false;refused;"
[ "$(sed 's/.* is //' seen | tr '\n' ';')" = "$expected" ] || { echo "it has changed"; exit 1; }
