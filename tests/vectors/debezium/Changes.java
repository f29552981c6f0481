import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Prints the change events of a PostgreSQL, one JSON object a line, until standard input ends.
 *
 * Arguments are settings of Debezium, `name=value`, and of the converter, `converter.name=value`. Each line has a record's topic, its key and the number that Kafka's
 * producer makes of it, and its value as Connect's JsonConverter writes it: without schemas, with them, and unwrapped by
 * ExtractNewRecordState. Without a value, it is a tombstone; without an unwrapped one, that leaves it out.
 */
public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of("name", "changes", "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix", "shop",
            "plugin.name", "pgoutput", "database.password", "", "offset.flush.interval.ms", "1000", "poll.interval.ms", "20"));
        for (String argument : arguments) settings.put(argument.split("=", 2)[0], argument.split("=", 2)[1]);
        JsonConverter keys = converter(settings, true, false), values = converter(settings, false, false);
        JsonConverter withSchemas = converter(settings, false, true);
        ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
        unwrap.configure(Map.of("delete.tombstone.handling.mode", "rewrite"));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
            .using(settings).notifying((records, committer) -> {
                for (RecordChangeEvent<SourceRecord> event : records) {
                    SourceRecord record = event.record();
                    SourceRecord flat = unwrap.apply(record);
                    byte[] key = keys.fromConnectData(record.topic(), record.keySchema(), record.key());
                    out.println("{\"topic\":" + quoted(record.topic()) + ",\"key\":" + text(key)
                        + ",\"hash\":" + (key == null ? 0 : Utils.toPositive(Utils.murmur2(key)))
                        + ",\"value\":" + value(values, record) + ",\"with_schema\":" + value(withSchemas, record)
                        + ",\"unwrapped\":" + (flat == null ? "null" : value(values, flat)) + "}");
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            }).using((success, message, error) -> {
                if (!success) { System.err.println(message); if (error != null) error.printStackTrace(); System.exit(1); }
            }).build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        while (System.in.read() >= 0) { }
        engine.close();
        thread.shutdown();
        thread.awaitTermination(20, TimeUnit.SECONDS);
        System.exit(0);
    }

    static JsonConverter converter(Properties settings, boolean key, boolean schemas) {
        Map<String, Object> own = new HashMap<>(Map.of("schemas.enable", schemas));
        for (String name : settings.stringPropertyNames())
            if (name.startsWith("converter.")) own.put(name.substring("converter.".length()), settings.getProperty(name));
        JsonConverter made = new JsonConverter();
        made.configure(own, key);
        return made;
    }

    static String value(JsonConverter by, SourceRecord record) {
        return text(by.fromConnectData(record.topic(), record.valueSchema(), record.value()));
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : quoted(new String(bytes, StandardCharsets.UTF_8));
    }

    static String quoted(String text) {
        return new com.fasterxml.jackson.databind.node.TextNode(text).toString();
    }
}
