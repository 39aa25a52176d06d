import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.storage.FileOffsetBackingStore;
import org.apache.kafka.connect.storage.KafkaOffsetBackingStore;
import org.apache.kafka.connect.storage.OffsetBackingStore;
import org.apache.kafka.connect.storage.OffsetStorageWriter;
import org.apache.kafka.connect.util.TopicAdmin;

/**
 * Writes offsets with the classes of Kafka Connect itself: WriteOffsets WHERE CONNECTOR LINES, where WHERE is a file, or
 * BROKER/TOPIC. LINES is a file; in each line, field=value of the partition, a tab, and field=value of the offset.
 */
public class WriteOffsets {
    public static void main(String[] args) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        JsonConverter keys = new JsonConverter();
        keys.configure(Map.of("schemas.enable", "false"), true);
        boolean inTopic = args[0].contains(":");
        OffsetBackingStore store = inTopic ? topic(args[0], converter) : file(args[0], converter);
        store.start();
        for (String line : Files.readAllLines(Path.of(args[2]))) {
            String[] parts = line.split("\t", -1);
            OffsetStorageWriter writer = new OffsetStorageWriter(store, args[1], keys, converter);
            writer.offset(fields(parts[0]), parts[1].isEmpty() ? null : fields(parts[1]));
            writer.beginFlush();
            writer.doFlush((error, result) -> {}).get(60, TimeUnit.SECONDS);
        }
        store.stop();
        System.exit(0);
    }

    private static Map<String, Object> fields(String text) {
        Map<String, Object> found = new HashMap<>();
        for (String field : text.split(",")) {
            found.put(field.substring(0, field.indexOf('=')), field.substring(field.indexOf('=') + 1));
        }
        return found;
    }

    private static Map<String, String> worker() {
        Map<String, String> found = new HashMap<>();
        found.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
        found.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        return found;
    }

    private static OffsetBackingStore file(String file, JsonConverter converter) {
        Map<String, String> properties = worker();
        properties.put("bootstrap.servers", "127.0.0.1:1");
        properties.put("offset.storage.file.filename", file);
        FileOffsetBackingStore store = new FileOffsetBackingStore(converter);
        store.configure(new StandaloneConfig(properties));
        return store;
    }

    private static OffsetBackingStore topic(String where, JsonConverter converter) {
        String broker = where.substring(0, where.indexOf('/'));
        Map<String, String> properties = worker();
        properties.put("bootstrap.servers", broker);
        properties.put("group.id", "connect");
        for (String kind : new String[] {"offset", "config", "status"}) {
            properties.put(kind + ".storage.topic", where.substring(where.indexOf('/') + 1));
            properties.put(kind + ".storage.replication.factor", "1");
        }
        properties.put("offset.storage.partitions", "3");
        WorkerConfig config = new DistributedConfig(properties);
        KafkaOffsetBackingStore store = new KafkaOffsetBackingStore(
            () -> new TopicAdmin(Map.of("bootstrap.servers", broker)), () -> "tests", converter);
        store.configure(config);
        return store;
    }
}
