#!/bin/sh
# Where Spring Cloud Stream 4.3.1 puts a record whose binding has a `partition-key-expression`. Its test binder shows the partition that it
# sends to a broker, for Kafka as for others.
# Guess: over Kafka the key goes to Kafka's producer, which puts it where murmur2 of its bytes says: user-1 in 8 of 12, as any Java client.
# Seen:  Spring takes the absolute hashCode of the key's object mod `partition-count`, 0 where Java has none, and sends the partition with
#        the record: user-1 lies in 9. So a key lies elsewhere than by every client of Kafka's, and 1001 as a Long or an Integer elsewhere than as text.
# Needs Maven and a JDK.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.springframework.cloud</groupId><artifactId>spring-cloud-stream</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.springframework.cloud</groupId><artifactId>spring-cloud-stream-test-binder</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.springframework.boot</groupId><artifactId>spring-boot-starter-json</artifactId><version>3.5.7</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-api</artifactId><version>2.0.17</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > mvn.log || { cat mvn.log; exit 1; }
mkdir probe
cat > probe/Probe.java <<'JAVA'
package probe;

import java.util.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.*;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.stream.binder.test.*;
import org.springframework.cloud.stream.function.StreamBridge;

@SpringBootApplication
public class Probe {
    public static void main(String[] arguments) {
        String out = "--spring.cloud.stream.bindings.out.";
        var app = new SpringApplicationBuilder(TestChannelBinderConfiguration.getCompleteConfiguration(Probe.class)).web(WebApplicationType.NONE);
        try (var context = app.run("--logging.level.root=OFF", "--spring.main.banner-mode=off", "--spring.cloud.stream.output-bindings=out",
            out + "destination=orders", out + "producer.partition-key-expression=payload", out + "producer.partition-count=12")) {
            var bridge = context.getBean(StreamBridge.class);
            var sent = context.getBean(OutputDestination.class);
            for (Object key : List.of("user-1", "user-2", "polygenelubricants", "1001", 1001L, 1001)) {
                bridge.send("out", key);
                byte[] bytes = key instanceof Long number ? new LongSerializer().serialize("orders", number)
                    : key instanceof Integer number ? new IntegerSerializer().serialize("orders", number) : ((String) key).getBytes();
                System.out.println(key.getClass().getSimpleName() + " " + key + ": " + sent.receive(1000, "orders").getHeaders().get("scst_partition")
                    + ", and " + BuiltInPartitioner.partitionForKey(bytes, 12) + " by Kafka's client");
            }
        }
    }
}
JAVA
javac -cp 'libs/*' -d out probe/Probe.java
java -cp 'out:libs/*' probe.Probe > seen 2> log || { cat log; exit 1; }
cat seen
cat > expected <<'X'
String user-1: 9, and 8 by Kafka's client
String user-2: 8, and 8 by Kafka's client
String polygenelubricants: 0, and 2 by Kafka's client
String 1001: 8, and 0 by Kafka's client
Long 1001: 5, and 11 by Kafka's client
Integer 1001: 5, and 1 by Kafka's client
X
diff expected seen || { echo "it has changed"; exit 1; }
