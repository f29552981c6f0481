#!/bin/sh
# Debezium 3.3.1 on a PostgreSQL 15, its settings and those of Connect's JsonConverter as they are by default.
# Guess: who applies all events in their order has the table, row for row.
# Seen:  five rows of six are others, and nothing fails. NULL is the column's default (the converter's replace.null.with.default). A row
#        whose key changes is deleted and inserted, and its long text, which did not change, is `__debezium_unavailable_value`: the text
#        is in no event of the new key. Of ADD COLUMN … DEFAULT nothing is said, and the rows that are there have the default. In the
#        snapshot, and in it alone, a timestamp before 1582-10-15 is some days later, as if it were of the Julian calendar: the rows 3
#        and 4 are alike but for that. After TRUNCATE nothing is said (skipped.operations=t).
# Needs Debian's postgresql-15, Maven and a JDK.
set -eu
home=$(mktemp -d)
chmod 755 "$home"
bin=/usr/lib/postgresql/15/bin port=$((20000 + $$ % 20000))
as=$([ "$(id -u)" = 0 ] && echo "setpriv --reuid=nobody --regid=nogroup --clear-groups" || true)
mkdir "$home/d"
[ -z "$as" ] || chown nobody "$home/d"
trap 'cd /; $as $bin/pg_ctl -D "$home/d/data" -m immediate stop > /dev/null || true; rm -rf "$home"' EXIT
cd "$home"
$as $bin/initdb -D d/data -U it --auth=trust --no-sync > /dev/null
$as $bin/pg_ctl -D d/data -w -l d/log -o "-cwal_level=logical -cport=$port -cunix_socket_directories=$home/d" start > /dev/null
sql() { $bin/psql -qtA -h 127.0.0.1 -p "$port" -U it postgres "$@"; }
cat > pom.xml <<'E2'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>probe</groupId>
  <artifactId>probe</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.3.1.Final</version></dependency>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>3.3.1.Final</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
E2
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs > /dev/null
cat > Probe.java <<'JAVA'
import io.debezium.engine.*;
import io.debezium.engine.format.Json;
import java.util.*;

public class Probe {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of("name", "probe", "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "p", "plugin.name", "pgoutput",
            "database.hostname", "127.0.0.1", "database.port", arguments[0], "database.user", "it", "database.dbname", "postgres"));
        settings.putAll(Map.of("database.password", "", "converter.schemas.enable", "false"));
        var engine = DebeziumEngine.create(Json.class).using(settings).notifying(event -> {
            if (event.value() != null) System.out.println(event.value());
            if (event.destination().equals("p.public.ends")) System.exit(0);
        }).build();
        engine.run();
    }
}
JAVA
sql <<'SQL'
CREATE TABLE t (id int PRIMARY KEY, word text DEFAULT 'none', long text, at timestamp);
CREATE TABLE ends (id int PRIMARY KEY);
ALTER TABLE t ALTER long SET STORAGE EXTERNAL;
INSERT INTO t VALUES (4, 'at', NULL, '1500-01-01');
SQL
java -cp 'libs/*' Probe.java "$port" > events &
until [ "$(sql -c "SELECT count(*) FROM pg_replication_slots WHERE active")" = 1 ]; do sleep 1; done
sql <<'SQL'
INSERT INTO t (id, word, long, at) VALUES
    (1, NULL, NULL, NULL), (2, 'word', repeat('long', 1000), NULL), (3, 'at', NULL, '1500-01-01'), (5, 'same', NULL, NULL);
UPDATE t SET id = 6 WHERE id = 2;
ALTER TABLE t ADD COLUMN more int DEFAULT 7;
INSERT INTO t (id) VALUES (7);
SELECT json_agg(row_to_json(t)) FROM t \g table
TRUNCATE t;
INSERT INTO ends VALUES (1);
SQL
wait
python3 - <<'PY'
import json
from datetime import datetime, timedelta

said = {}
for event in map(json.loads, open("events")):
    if event["source"]["table"] == "t":
        said.pop((event["before"] or event["after"])["id"], None)
        if row := event["after"]:
            at = row["at"] and str(datetime(1970, 1, 1) + timedelta(microseconds=row["at"])).replace(" ", "T")
            said[row["id"]] = {"more": None, **row, "at": at}
there = {row["id"]: row for row in json.load(open("table"))}
differ = {}
for key, row in sorted(there.items()):
    differ |= {(key, name): (str(value)[:8], said[key][name]) for name, value in row.items() if value != said[key][name]}
for (key, name), (value, other) in differ.items():
    print(f"row {key}: {name} is {value} in the table, and {other} by its events")
print(f"after TRUNCATE: no row in the table, and {len(said)} by its events")
assert said.keys() == there.keys(), "it has changed"
assert differ.pop((1, "word")) == ("None", "none"), "it has changed"
assert differ.pop((6, "long"))[1] == "__debezium_unavailable_value", "it has changed"
assert differ.pop((4, "at")) == ("1500-01-", "1500-01-10T00:00:00"), "it has changed"
assert differ == {(key, "more"): ("7", None) for key in (1, 3, 4, 5, 6)}, "it has changed"
PY
