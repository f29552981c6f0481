import java.io.PrintWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/** Joins two topics by their keys with Kafka Streams until all records are read, and writes a line for each row. */
final class Joined {
    public static void main(String[] given) throws Exception {
        String broker = given[0], application = given[1], orders = given[2], payments = given[3];
        Path state = Path.of(given[4]);
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        var failed = new AtomicReference<Throwable>();
        try (var out = new PrintWriter(given[5]); var admin = Admin.create(settings)) {
            var builder = new StreamsBuilder();
            KStream<String, String> paid = builder.stream(payments);
            builder.<String, String>stream(orders)
                .join(paid, (order, payment) -> order + " " + payment, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofDays(1)))
                .foreach((customer, row) -> out.println(customer + " " + row));
            try (var streams = new KafkaStreams(builder.build(), settings)) {
                streams.setUncaughtExceptionHandler(error -> {
                    failed.set(error);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
                streams.start();
                while (failed.get() == null && !isRead(admin, application, orders, payments)) {
                    Thread.sleep(100);
                }
            }
        }
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
    }

    /** Whether the application has committed the end of each partition, and so given all rows. */
    private static boolean isRead(Admin admin, String application, String... topics)
        throws ExecutionException, InterruptedException {
        var described = admin.describeTopics(java.util.List.of(topics)).allTopicNames().get();
        Map<TopicPartition, OffsetSpec> asked = described.values().stream()
            .flatMap(topic -> IntStream.range(0, topic.partitions().size())
                .mapToObj(number -> new TopicPartition(topic.name(), number)))
            .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
        var ends = admin.listOffsets(asked).all().get();
        var committed = admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
        return ends.entrySet().stream().allMatch(end -> end.getValue().offset() == 0
            || committed.get(end.getKey()) != null
            && committed.get(end.getKey()).offset() >= end.getValue().offset());
    }
}
