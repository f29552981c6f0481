#!/bin/sh
# Text that Kafka Connect's TimestampConverter 4.1.1 makes a Timestamp of, by the `format` that its setting gives.
# Guess: what is not as the format says is refused, as the transformation has an error for that, and digits behind a point are parts of a second.
# Seen:  next to nothing is refused. The digits behind the point are counted as milliseconds, however many: .123456 is two minutes and 3.456 s later, .5 is
#        5 ms. 30 February is 2 March, 25:61 o'clock is the next day's 02:01, what stands behind the format is left out, with a time or a zone in it, and
#        with YYYY for yyyy all days of a year are one day of the year before. So records come into windows of other minutes, days or years.
# Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.1.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
cat > Times.java <<'JAVA'
import java.util.Date;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.TimestampConverter;

public class Times {
    public static void main(String[] arguments) {
        String[][] cases = {
            {"yyyy-MM-dd HH:mm:ss.SSS", "2026-11-30 12:00:00.123"},
            {"yyyy-MM-dd HH:mm:ss.SSSSSS", "2026-11-30 12:00:00.123456"},
            {"yyyy-MM-dd HH:mm:ss.SSS", "2026-11-30 12:00:00.5"},
            {"yyyy-MM-dd", "2026-02-30"},
            {"yyyy-MM-dd HH:mm:ss", "2026-11-30 25:61:00"},
            {"yyyy-MM-dd'T'HH:mm:ss", "2026-11-30T12:00:00.999+05:00"},
            {"YYYY-MM-dd", "2026-07-14"},
            {"dd.MM.yyyy", "30.11.26"},
            {"yyyy-MM-dd", "30.11.2026"},
        };
        for (String[] each : cases) {
            try (var made = new TimestampConverter.Value<SourceRecord>()) {
                made.configure(Map.of("target.type", "Timestamp", "field", "at", "format", each[0]));
                var record = made.apply(new SourceRecord(Map.of(), Map.of(), "orders", null, null, Map.of("at", each[1])));
                System.out.println(each[1] + " by " + each[0] + " is " + ((Date) ((Map<?, ?>) record.value()).get("at")).toInstant());
            } catch (RuntimeException error) {
                System.out.println(each[1] + " by " + each[0] + " is refused");
            }
        }
    }
}
JAVA
java -cp 'libs/*' Times.java > seen 2> java.log || { cat java.log; exit 1; }
cat seen
cat > expected <<'E'
2026-11-30T12:00:00.123Z
2026-11-30T12:02:03.456Z
2026-11-30T12:00:00.005Z
2026-03-02T00:00:00Z
2026-12-01T02:01:00Z
2026-11-30T12:00:00Z
2025-12-28T00:00:00Z
0026-11-28T00:00:00Z
refused
E
sed 's/.* is //' seen | diff expected - > /dev/null || { echo "it has changed"; exit 1; }
