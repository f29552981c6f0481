import java.io.*;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.zip.GZIPOutputStream;
import org.apache.avro.file.*;
import org.apache.avro.generic.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;

/** Files as Kafka Connect writes them: JSON lines by its JsonConverter, Avro containers by Avro's own writer. */
public class Landed {
    static final int ROWS = 40;

    public static void main(String[] args) throws Exception {
        json(new GZIPOutputStream(new FileOutputStream("views+0+0000000100.json.gz")), "NUMERIC");
        json(new FileOutputStream("views+0+0000000100.json"), "BASE64");
        for (String codec : List.of("null", "deflate", "snappy", "bzip2")) avro(codec);
    }

    static void json(OutputStream out, String decimals) throws Exception {
        Schema place = SchemaBuilder.struct().field("x", Schema.INT32_SCHEMA).field("y", Schema.OPTIONAL_STRING_SCHEMA).optional().build();
        Schema schema = SchemaBuilder.struct().name("View")
            .field("member", Schema.OPTIONAL_STRING_SCHEMA).field("n", Schema.INT64_SCHEMA)
            .field("price", Decimal.builder(2).optional().build()).field("score", Schema.FLOAT64_SCHEMA)
            .field("good", Schema.BOOLEAN_SCHEMA).field("day", Date.SCHEMA).field("at", Timestamp.SCHEMA)
            .field("raw", Schema.BYTES_SCHEMA).field("tags", SchemaBuilder.array(Schema.STRING_SCHEMA).build())
            .field("place", place).field("_offset", Schema.INT64_SCHEMA).build();
        Map<String, Object> settings = Map.of("schemas.enable", "false", "decimal.format", decimals);
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, false);
        try (out) {
            for (int i = 0; i < ROWS; i++) {
                Struct row = new Struct(schema).put("member", i % 9 == 0 ? null : "mémber-" + i % 7).put("n", (1L << 62) + i)
                    .put("price", i % 5 == 0 ? null : new BigDecimal("12345678901234567.25").add(BigDecimal.valueOf(i)))
                    .put("score", i / 3.0).put("good", i % 2 == 0)
                    .put("day", new java.util.Date(86400000L * (20000 + i))).put("at", new java.util.Date(1700000000000L + i))
                    .put("raw", new byte[] {(byte) i, (byte) 255}).put("tags", i % 3 == 0 ? List.of() : List.of("a", "b" + i))
                    .put("place", i % 4 == 0 ? null : new Struct(place).put("x", i).put("y", i % 2 == 0 ? null : "y")).put("_offset", 100L + i);
                out.write(converter.fromConnectData("views", schema, row));
                out.write('\n');
            }
        }
    }

    static void avro(String codec) throws Exception {
        // As Connect's AvroData says it: optional fields are unions, names and parameters of Connect beside them.
        String text = "{\"type\":\"record\",\"name\":\"View\",\"namespace\":\"shop\",\"connect.name\":\"shop.View\",\"fields\":["
            + "{\"name\":\"member\",\"type\":[\"null\",\"string\"],\"default\":null},{\"name\":\"n\",\"type\":\"long\"},"
            + "{\"name\":\"price\",\"type\":[\"null\",{\"type\":\"bytes\",\"scale\":2,\"precision\":64,\"connect.version\":1,"
            + "\"connect.parameters\":{\"scale\":\"2\"},\"connect.name\":\"org.apache.kafka.connect.data.Decimal\",\"logicalType\":\"decimal\"}],\"default\":null},"
            + "{\"name\":\"score\",\"type\":\"double\"},{\"name\":\"good\",\"type\":\"boolean\"},"
            + "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"connect.version\":1,\"connect.name\":\"org.apache.kafka.connect.data.Date\",\"logicalType\":\"date\"}},"
            + "{\"name\":\"at\",\"type\":{\"type\":\"long\",\"connect.version\":1,\"connect.name\":\"org.apache.kafka.connect.data.Timestamp\",\"logicalType\":\"timestamp-millis\"}},"
            + "{\"name\":\"raw\",\"type\":\"bytes\"},{\"name\":\"tags\",\"type\":{\"type\":\"array\",\"items\":\"string\"}},"
            + "{\"name\":\"place\",\"type\":[\"null\",{\"type\":\"record\",\"name\":\"Place\",\"fields\":[{\"name\":\"x\",\"type\":\"int\"},"
            + "{\"name\":\"y\",\"type\":[\"null\",\"string\"],\"default\":null}]}],\"default\":null},{\"name\":\"_offset\",\"type\":\"long\"}]}";
        org.apache.avro.Schema schema = new org.apache.avro.Schema.Parser().parse(text);
        org.apache.avro.Schema place = schema.getField("place").schema().getTypes().get(1);
        try (DataFileWriter<GenericRecord> writer = new DataFileWriter<>(new GenericDatumWriter<>(schema))) {
            writer.setCodec(CodecFactory.fromString(codec));
            writer.setSyncInterval(1000);
            writer.create(schema, new File("views+0+0000000100." + codec + ".avro"));
            for (int i = 0; i < ROWS; i++) {
                GenericRecord row = new GenericData.Record(schema);
                row.put("member", i % 9 == 0 ? null : "mémber-" + i % 7);
                row.put("n", (1L << 62) + i);
                row.put("price", i % 5 == 0 ? null : ByteBuffer.wrap(new BigDecimal("12345678901234567.25").add(BigDecimal.valueOf(i)).unscaledValue().toByteArray()));
                row.put("score", i / 3.0);
                row.put("good", i % 2 == 0);
                row.put("day", 20000 + i);
                row.put("at", 1700000000000L + i);
                row.put("raw", ByteBuffer.wrap(new byte[] {(byte) i, (byte) 255}));
                row.put("tags", i % 3 == 0 ? List.of() : List.of("a", "b" + i));
                GenericRecord where = new GenericData.Record(place);
                where.put("x", i);
                where.put("y", i % 2 == 0 ? null : "y");
                row.put("place", i % 4 == 0 ? null : where);
                row.put("_offset", 100L + i);
                writer.append(row);
            }
        }
    }
}
