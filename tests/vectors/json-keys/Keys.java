import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.*;
import java.util.*;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.json.*;
import org.apache.flink.table.data.*;
import org.apache.flink.table.types.logical.*;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;

/** Keys of several columns, as Kafka Connect's JsonConverter and Flink's format json write them, with their murmur2. */
public class Keys {
    static final String[] PARTS = {"ann", "DE", "", " ", "\"", "\\", "/", ",", "[", "]", "{", "}", ":", "a\",\"b", "é", "e\u0301", "Zürich", "日本",
        "\uD83D\uDE00", "\uD800\uDC00", "\uDBFF\uDFFF", "\uFFFF", "\u007F", "\u0080", "\u2028", "\b", "\t", "\n", "\f", "\r", "\u0000", "\u000B", "\u001F", "<a href='x'>&</a>"};

    public static void main(String[] args) throws Exception {
        Schema schema = SchemaBuilder.struct().name("Key").field("customer", Schema.OPTIONAL_STRING_SCHEMA)
            .field("land", Schema.OPTIONAL_STRING_SCHEMA).field("n", Schema.OPTIONAL_INT64_SCHEMA).field("good", Schema.OPTIONAL_BOOLEAN_SCHEMA).build();
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), true);
        RowType row = RowType.of(new LogicalType[] {new VarCharType(), new VarCharType(), new BigIntType(), new BooleanType()}, new String[] {"customer", "land", "n", "good"});
        JsonRowDataSerializationSchema flink = new JsonRowDataSerializationSchema(
            row, TimestampFormat.SQL, JsonFormatOptions.MapNullKeyMode.FAIL, "null", false, false);
        flink.open(null);
        ObjectMapper mapper = new ObjectMapper();
        Random chance = new Random(7);
        Long[] numbers = {0L, 1L, -1L, Long.MAX_VALUE, Long.MIN_VALUE, null};
        Boolean[] goods = {true, false, null};
        for (int i = 0; i < 200; i++) {
            String customer = text(chance, i), land = text(chance, -1);
            Long n = chance.nextInt(3) > 0 ? (Long) chance.nextLong() : numbers[chance.nextInt(numbers.length)];
            Boolean good = goods[chance.nextInt(3)];
            byte[] connect = converter.fromConnectData("t", schema, new Struct(schema).put("customer", customer).put("land", land).put("n", n).put("good", good));
            byte[] flinks = flink.serialize(GenericRowData.of(StringData.fromString(customer), StringData.fromString(land), n, good));
            if (!Arrays.equals(connect, flinks)) throw new Exception(new String(connect, "UTF-8") + " is not " + new String(flinks, "UTF-8"));
            ArrayNode values = mapper.createArrayNode().add(customer).add(land).add(n);
            if (good == null) values.addNull(); else values.add(good);
            ObjectNode line = mapper.createObjectNode();
            line.set("values", values);
            line.put("hex", HexFormat.of().formatHex(connect)).put("positive", Utils.toPositive(Utils.murmur2(connect)));
            System.out.println(mapper.writeValueAsString(line));
        }
    }

    static String text(Random chance, int i) {
        if (i >= 0 && i < PARTS.length) return PARTS[i];
        if (chance.nextInt(8) == 0) return null;
        StringBuilder text = new StringBuilder();
        for (int n = chance.nextInt(4); n >= 0; n--) text.append(PARTS[chance.nextInt(PARTS.length)]);
        return text.toString();
    }
}
