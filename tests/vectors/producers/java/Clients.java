// Where Kafka's and Pulsar's Java clients put keys. Reads keys as hexadecimal lines, writes a JSON object a line.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import java.util.function.BiFunction;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.impl.JavaStringHash;
import org.apache.pulsar.client.impl.Murmur3Hash32;
import org.apache.pulsar.client.util.MathUtils;

public class Clients {
    public static void main(String[] arguments) {
        List<byte[]> keys = new ArrayList<>();
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            keys.add(HexFormat.of().parseHex(lines.nextLine()));
        }
        write("Java", AppInfoParser.getVersion(), "", keys, BuiltInPartitioner::partitionForKey);
        String pulsar = arguments[0];
        write("Pulsar, Java", pulsar, "", keys, (key, count) ->
            MathUtils.signSafeMod(JavaStringHash.getInstance().makeHash(text(key)), count));
        write("Pulsar, Java", pulsar, "HashingScheme." + HashingScheme.Murmur3_32Hash, keys, (key, count) ->
            MathUtils.signSafeMod(Murmur3Hash32.getInstance().makeHash(text(key)), count));
    }

    static String text(byte[] key) {
        return new String(key, StandardCharsets.UTF_8);
    }

    // Both routers ask no hash about a message without a key.
    static void write(String client, String version, String setting, List<byte[]> keys, BiFunction<byte[], Integer, Integer> place) {
        List<String> placed = new ArrayList<>();
        for (int count : new int[] {8, 12, 65521}) {
            placed.add("\"" + count + "\": " + keys.stream().map(key -> place.apply(key, count)).toList());
        }
        System.out.printf("{\"client\": \"%s\", \"version\": \"%s\", \"setting\": \"%s\", \"none\": null, \"placed\": {%s}}%n",
            client, version, setting, String.join(", ", placed));
    }
}
