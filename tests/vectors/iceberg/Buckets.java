import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;
import org.apache.iceberg.transforms.Transforms;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Where Iceberg's transform `bucket` puts keys: by type a JSON object a line, of the key and its places. */
public class Buckets {
  static final int[] COUNTS = {8, 12, 65521};

  static <T> void say(String format, Type type, T key, String written) {
    String places =
        String.join(", ", Arrays.stream(COUNTS).mapToObj(n -> "\"" + n + "\": " + Transforms.<T>bucket(n).bind(type).apply(key)).toList());
    System.out.println("{\"format\": \"" + format + "\", \"key\": " + written + ", \"placed\": {" + places + "}}");
  }

  public static void main(String[] args) {
    long[] numbers = {0, 1, -1, 34, 255, 256, 2147483647L, 2147483648L, -2147483648L, Long.MAX_VALUE, Long.MIN_VALUE};
    for (long key : numbers) say("long", Types.LongType.get(), key, "" + key);
    for (long key = 1; key < 1L << 60; key *= 7) say("long", Types.LongType.get(), -key, "" + -key);
    for (int key : new int[] {0, 1, -1, 34, 2147483647, -2147483648}) say("int", Types.IntegerType.get(), key, "" + key);
    String[] uuids = {"f79c3e09-677c-4bbd-a479-3f349cb785e7", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"};
    for (String key : uuids) say("uuid", Types.UUIDType.get(), UUID.fromString(key), "\"" + key + "\"");
    for (String key : new String[] {"", "a", "ab", "abc", "abcd", "iceberg", "Zürich", "東京", "😀", "a😀b", "N14228"})
      say("string", Types.StringType.get(), (CharSequence) key, "\"" + key + "\"");
    byte[] bytes = {0, 1, 2, (byte) 0xff};
    for (int length = 0; length <= 4; length++)
      say("bytes", Types.BinaryType.get(), ByteBuffer.wrap(bytes, 0, length), "\"" + "000102ff".substring(0, 2 * length) + "\"");
  }
}
