import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;
import io.apicurio.registry.utils.converter.avro.*;

/**
 * Reads lines {"schema": ..., "payloads": [...]}, as JsonConverter has them; writes {"avro": text, "bytes": [base64...]}.
 * Needs, from Maven Central, io.apicurio:apicurio-registry-utils-converter:3.0.9 (the jar alone: its parent is not
 * there), org.apache.avro:avro:1.11.4, org.apache.kafka:connect-json:4.1.1, and Jackson 2.19. Arguments are options of
 * AvroData, as name=value.
 */
public class AvroOfConnect {
    static final ObjectMapper M = new ObjectMapper();
    static Object value(Schema s, JsonNode n) {
        if (n == null || n.isNull()) return null;
        if (s.name() != null && s.name().equals(org.apache.kafka.connect.data.Date.LOGICAL_NAME))
            return new java.util.Date(n.longValue() * 86400000L);
        if (s.name() != null && s.name().equals(Timestamp.LOGICAL_NAME)) return new java.util.Date(n.longValue());
        switch (s.type()) {
            case INT8: return (byte) n.intValue();
            case INT16: return (short) n.intValue();
            case INT32: return n.intValue();
            case INT64: return n.longValue();
            case FLOAT32: return n.isTextual() ? Float.parseFloat(n.textValue()) : Float.parseFloat(n.asText());
            case FLOAT64: return n.isTextual() ? Double.parseDouble(n.textValue()) : n.doubleValue();
            case BOOLEAN: return n.booleanValue();
            case STRING: return n.textValue();
            case BYTES: return ByteBuffer.wrap(Base64.getDecoder().decode(n.textValue()));
            case ARRAY: { List<Object> l = new ArrayList<>(); for (JsonNode e : n) l.add(value(s.valueSchema(), e)); return l; }
            case STRUCT: { Struct r = new Struct(s); for (Field f : s.fields()) r.put(f, value(f.schema(), n.get(f.name()))); return r; }
            default: throw new IllegalStateException(s.type().toString());
        }
    }
    public static void main(String[] a) throws Exception {
        JsonConverter json = new JsonConverter();
        json.configure(Map.of("schemas.enable", "true"), false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        Map<String, String> config = new HashMap<>();
        for (String x : a) config.put(x.split("=")[0], x.split("=")[1]);
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode n = M.readTree(line);
            ObjectNode o = M.createObjectNode();
            try {
                Schema s = json.asConnectSchema(n.get("schema"));
                AvroData data = new AvroData(new AvroDataConfig(config));
                org.apache.avro.Schema avro = data.fromConnectSchema(s);
                o.put("avro", avro.toString());
                ArrayNode all = o.putArray("bytes");
                for (JsonNode p : n.get("payloads")) {
                    Object v = value(s, p);
                    Object d = data.fromConnectData(s, v);
                    ByteArrayOutputStream b = new ByteArrayOutputStream();
                    BinaryEncoder e = EncoderFactory.get().directBinaryEncoder(b, null);
                    new GenericDatumWriter<Object>(avro).write(d, e);
                    e.flush();
                    all.add(Base64.getEncoder().encodeToString(b.toByteArray()));
                }
            } catch (Exception x) { o.put("error", x.toString()); }
            out.println(M.writeValueAsString(o));
        }
    }
}
