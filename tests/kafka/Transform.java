import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Applies transforms of Kafka Connect and Debezium. A line in: {"options": {"type": class, ...}, "records": [record,
 * ...]}; a record: topic, key, value ({"schema", "payload"} as JsonConverter has them, or null), headers, or "of
 * previous" if it is the tombstone of the record before it, with which it shares its headers. A line out: what became
 * of each: a record with the texts of key and value; null; or {"error": what was thrown}.
 */
public class Transform {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonConverter CONVERTER = new JsonConverter();

  public static void main(String[] arguments) throws Exception {
    CONVERTER.configure(Map.of("schemas.enable", "true", "schemas.cache.size", "1"), false);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line; (line = in.readLine()) != null; ) {
      out.println(answer(JSON.readTree(line)));
    }
  }

  private static JsonNode answer(JsonNode asked) throws Exception {
    ArrayNode answers = JSON.createArrayNode();
    Map<String, String> options = new HashMap<>();
    asked.get("options").fields().forEachRemaining(o -> options.put(o.getKey(), o.getValue().textValue()));
    Transformation<SourceRecord> transform = null;
    try {
      transform = made(options);
    } catch (Throwable e) {
      return answers.add(error(e));
    }
    SourceRecord previous = null;
    for (JsonNode record : asked.get("records")) {
      previous = record.has("of previous") ? tombstone(previous) : record(record);
      try {
        SourceRecord found = transform.apply(previous);
        answers.add(found == null ? JSON.nullNode() : shown(found));
      } catch (Throwable e) {
        answers.add(error(e));
      }
    }
    return answers;
  }

  @SuppressWarnings("unchecked")
  private static Transformation<SourceRecord> made(Map<String, String> options) throws Exception {
    Object made = Class.forName(options.remove("type")).getDeclaredConstructor().newInstance();
    Transformation<SourceRecord> transform = (Transformation<SourceRecord>) made;
    transform.configure(options);
    return transform;
  }

  private static ObjectNode error(Throwable e) {
    return JSON.createObjectNode().put("error", e.toString());
  }

  private static SourceRecord record(JsonNode from) {
    SchemaAndValue key = read(from.get("key")), value = read(from.get("value"));
    SourceRecord record =
        new SourceRecord(
            null, null, from.get("topic").textValue(), null, key.schema(), key.value(), value.schema(), value.value());
    for (JsonNode header : from.get("headers")) {
      SchemaAndValue found = read(header.get("value"));
      record.headers().add(header.get("key").textValue(), found.value(), found.schema());
    }
    return record;
  }

  private static SourceRecord tombstone(SourceRecord of) {
    return of.newRecord(of.topic(), of.kafkaPartition(), of.keySchema(), of.key(), null, null, null, of.headers());
  }

  private static SchemaAndValue read(JsonNode from) {
    if (from.isNull()) {
      return SchemaAndValue.NULL;
    }
    Schema schema = CONVERTER.asConnectSchema(from.get("schema"));
    return new SchemaAndValue(schema, value(schema, from.get("payload")));
  }

  private static Object value(Schema schema, JsonNode from) {
    if (from == null || from.isNull()) {
      return null;
    }
    if (Date.LOGICAL_NAME.equals(schema.name())) {
      return new java.util.Date(from.longValue() * 86_400_000L);
    }
    if (Timestamp.LOGICAL_NAME.equals(schema.name())) {
      return new java.util.Date(from.longValue());
    }
    switch (schema.type()) {
      case INT8:
        return (byte) from.intValue();
      case INT16:
        return (short) from.intValue();
      case INT32:
        return from.intValue();
      case INT64:
        return from.longValue();
      case FLOAT32:
        return Float.parseFloat(from.asText());
      case FLOAT64:
        return Double.parseDouble(from.asText());
      case BOOLEAN:
        return from.booleanValue();
      case STRING:
        return from.textValue();
      case BYTES:
        return ByteBuffer.wrap(Base64.getDecoder().decode(from.textValue()));
      case ARRAY:
        List<Object> items = new ArrayList<>();
        from.forEach(item -> items.add(value(schema.valueSchema(), item)));
        return items;
      case STRUCT:
        Struct struct = new Struct(schema);
        for (Field field : schema.fields()) {
          struct.put(field, value(field.schema(), from.get(field.name())));
        }
        return struct;
      default:
        throw new IllegalArgumentException(schema.type().toString());
    }
  }

  private static ObjectNode shown(SourceRecord record) {
    ObjectNode shown = JSON.createObjectNode().put("topic", record.topic());
    shown.put("key", text(record.topic(), record.keySchema(), record.key()));
    shown.put("value", text(record.topic(), record.valueSchema(), record.value()));
    ArrayNode headers = shown.putArray("headers");
    for (Header header : record.headers()) {
      headers.addObject().put("key", header.key()).put("value", text("", header.schema(), header.value()));
    }
    return shown;
  }

  private static String text(String topic, Schema schema, Object value) {
    byte[] made = CONVERTER.fromConnectData(topic, schema, value);
    return made == null ? null : new String(made, StandardCharsets.UTF_8);
  }
}
