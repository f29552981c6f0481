import io.apicurio.registry.utils.converter.avro.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.avro.file.*;
import org.apache.avro.generic.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.parquet.avro.*;
import org.apache.parquet.hadoop.*;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;

/**
 * Writes change events, one JSON object with its schema a line, as a sink lands them in Avro and in Parquet.
 *
 * Arguments are the lines' file and the name of those to write. Connect's AvroData says how schemas and values are
 * written, which Confluent's and Aiven's sinks use too; Avro's and Parquet's own writers write them.
 */
public class AsAvro {
    public static void main(String[] arguments) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", true, "replace.null.with.default", false), false);
        AvroData avro = new AvroData(100);
        List<GenericRecord> records = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            SchemaAndValue read = converter.toConnectData("topic", line.getBytes(StandardCharsets.UTF_8));
            Struct said = (Struct) read.value();
            SchemaBuilder builder = SchemaBuilder.struct().name(read.schema().name());
            for (Field field : read.schema().fields()) builder.field(field.name(), field.schema());
            // As InsertField adds it.
            Schema schema = builder.field("_offset", Schema.INT64_SCHEMA).build();
            Struct value = new Struct(schema);
            for (Field field : read.schema().fields()) value.put(field.name(), said.getWithoutDefault(field.name()));
            value.put("_offset", (long) records.size());
            records.add((GenericRecord) avro.fromConnectData(schema, value));
        }
        // All have one: a sink begins a file with each.
        org.apache.avro.Schema schema = records.get(0).getSchema();
        try (DataFileWriter<GenericRecord> writer = new DataFileWriter<>(new GenericDatumWriter<>(schema))) {
            writer.create(schema, new File(arguments[1] + ".avro"));
            for (GenericRecord record : records) writer.append(record);
        }
        try (ParquetWriter<GenericRecord> writer = AvroParquetWriter.<GenericRecord>builder(new LocalOutputFile(Path.of(arguments[1] + ".parquet")))
                .withSchema(schema).withDataModel(GenericData.get()).withCompressionCodec(CompressionCodecName.SNAPPY)
                .config("parquet.avro.write-old-list-structure", "false").build()) {
            for (GenericRecord record : records) writer.write(record);
        }
    }
}
