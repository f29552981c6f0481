#!/bin/sh
# Numbers in JSON through Kafka Connect 4.1.1: its JsonConverter, as sinks and sources have it.
# Guess: a number that does not fit becomes a double, or is refused: without a schema 2^64-1 is 1.8446744073709552E19, and in a field that the
#        schema calls int32 neither 5000000000 nor 1.9 is taken.
# Seen:  whole numbers lose their upper bits, in silence. 18446744073709551615 is -1, and so is the record's real -1; 2^63 is -2^63, 2^65+1 is 1. By a
#        schema int32 makes 705032704 of 5000000000 and 1 of 1.9, int8 44 of 300, and int64 0 of 1e300. So of an unsigned id of Go or Rust a sink lands
#        another id, and two ids are one. Written as 1E3, or with a point, a number is a double in one record and a long in the next.
# Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.1.1</version></dependency></dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
cat > Numbers.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

public class Numbers {
    public static void main(String[] arguments) {
        var plain = converter(false);
        for (String number : new String[] {"18446744073709551615", "9223372036854775808", "36893488147419103233", "1000", "1E3", "1e400"}) {
            Object id = ((Map<?, ?>) read(plain, "{\"id\": " + number + "}")).get("id");
            System.out.println(number + " is the " + id.getClass().getSimpleName() + " " + id);
        }
        var declared = converter(true);
        for (String[] pair : new String[][] {{"int8", "300"}, {"int32", "5000000000"}, {"int32", "1.9"}, {"int64", "1e300"}, {"float", "1e300"}}) {
            String text = "{\"schema\": {\"type\": \"%s\"}, \"payload\": %s}".formatted(pair[0], pair[1]);
            System.out.println(pair[1] + " as " + pair[0] + " is " + read(declared, text));
        }
    }

    static JsonConverter converter(boolean schemas) {
        var made = new JsonConverter();
        made.configure(Map.of("schemas.enable", schemas), false);
        return made;
    }

    static Object read(JsonConverter converter, String text) {
        return converter.toConnectData("orders", text.getBytes(StandardCharsets.UTF_8)).value();
    }
}
JAVA
java -cp 'libs/*' Numbers.java > seen 2> java.log || { cat java.log; exit 1; }
cat seen
cat > expected <<'E'
18446744073709551615 is the Long -1
9223372036854775808 is the Long -9223372036854775808
36893488147419103233 is the Long 1
1000 is the Long 1000
1E3 is the Double 1000.0
1e400 is the Double Infinity
300 as int8 is 44
5000000000 as int32 is 705032704
1.9 as int32 is 1
1e300 as int64 is 0
1e300 as float is Infinity
E
diff expected seen > /dev/null || { echo "it has changed"; exit 1; }
