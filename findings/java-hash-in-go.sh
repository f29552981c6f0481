#!/bin/sh
# The hash `JavaStringHash` of Pulsar's client for Go, v0.19.0, beside that of its client for Java, 4.1.1: both their defaults.
# Guess: it is Java's String.hashCode, as its comment says, and so a key lies in one partition whoever produces it.
# Seen:  it adds up the bytes of UTF-8, where Java adds up UTF-16 units, and keeps the sign bit, which Java's client clears. So keys that are
#        not ASCII lie elsewhere, and ASCII ones do if their hash is negative and the number of partitions is no power of two. The last
#        letters hardly change the sign, so keys of one kind agree or differ together: of user-0 to user-999 none agrees among 12
#        partitions, all do among 8, and k0 to k99 do among both. `Murmur3_32Hash` is the same in both clients.
set -eu
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf "$home"' EXIT
cd "$home"
cat > go.mod <<'E2'
module probe

go 1.24
E2
go get github.com/apache/pulsar-client-go@v0.19.0 2>/dev/null
# Its hashes are within an internal package, so what calls them has to lie within the module.
cp -r "$(go list -m -f '{{.Dir}}' github.com/apache/pulsar-client-go)" m
chmod -R u+w m
mkdir m/pulsar/probe
cat > m/pulsar/probe/main.go <<'GO'
package main

import (
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar/internal"
)

func main() {
	for _, key := range keys() {
		fmt.Println(internal.JavaStringHash(key), internal.Murmur3_32Hash(key))
	}
}

func keys() (all []string) {
	for number := range 1000 {
		all = append(all, fmt.Sprintf("user-%d", number))
	}
	for number := range 100 {
		all = append(all, fmt.Sprintf("k%d", number), fmt.Sprintf("ä%d", number))
	}
	return
}
GO
(cd m && go run ./pulsar/probe 2>/dev/null) > of-go
cat > pom.xml <<'E2'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>probe</groupId>
  <artifactId>probe</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.pulsar</groupId><artifactId>pulsar-client</artifactId><version>4.1.1</version></dependency>
  </dependencies>
</project>
E2
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > /dev/null
cat > Probe.java <<'JAVA'
import org.apache.pulsar.client.impl.JavaStringHash;
import org.apache.pulsar.client.impl.Murmur3Hash32;

public class Probe {
    public static void main(String[] arguments) {
        for (int number = 0; number < 1000; number++) {
            say("user-" + number);
        }
        for (int number = 0; number < 100; number++) {
            say("k" + number);
            say("ä" + number);
        }
    }

    static void say(String key) {
        System.out.println(JavaStringHash.getInstance().makeHash(key) + " " + Murmur3Hash32.getInstance().makeHash(key));
    }
}
JAVA
java -Dfile.encoding=UTF-8 -cp 'libs/*' Probe.java > of-java
python3 - <<'PY'
go, java = ([tuple(map(int, line.split())) for line in open(name)] for name in ("of-go", "of-java"))
groups = {"user-0 … user-999": range(1000), "k0 … k99": range(1000, 1200, 2), "ä0 … ä99": range(1001, 1200, 2)}
seen = {}
for name, rows in groups.items():
    seen[name] = {count: sum(go[row][0] % count == java[row][0] % count for row in rows) for count in (8, 12)}
    print(f"{name:18} of {len(rows)} keys alike: {seen[name][8]} among 8 partitions, {seen[name][12]} among 12")
assert all(one[1] == other[1] for one, other in zip(go, java)), "it has changed"
assert seen["k0 … k99"] == {8: 100, 12: 100}, "it has changed"
assert seen["user-0 … user-999"] == {8: 1000, 12: 0}, "it has changed"
assert seen["ä0 … ä99"] == {8: 0, 12: 0}, "it has changed"
PY
