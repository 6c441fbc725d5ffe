// Kafka's own clients behind a pipe: one JSON object a line in, one a line out.
//
//   java -cp 'lib/*' Client.java BOOTSTRAP < requests > answers
//
//   {"op":"create","topic":T,"partitions":N,"config":{...}}
//   {"op":"produce","topic":T,"partition":P,"producer":NAME,"config":{...},"records":[...]}
//       the producer NAME is made with its config at first use; with a transactional.id it begins
//       a transaction when none is open; every record: key, value, headers [[k, v]], timestamp
//   {"op":"end","producer":NAME,"commit":true}
//   {"op":"consume","topic":T,"partition":P,"isolation":"read_committed"}
//   {"op":"by_time","topic":T,"partition":P,"timestamps":[MS, ...]}   offsets, as Admin finds them
//   {"op":"delete_records","topic":T,"partition":P,"before":N}
//   {"op":"utf8","bytes":[BASE64, ...]}      how Java reads bytes as UTF-8
//   {"op":"decompress","codec":N,"magic":M,"bytes":[BASE64, ...]}
//   {"op":"records","bytes":[BASE64, ...]}   the records of log files, up to the first error
// Bytes are base64 or null. An answer with "error" says what went wrong.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.BufferSupplier;

public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    final String bootstrap;
    final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    final Set<String> inTransaction = new HashSet<>();

    Client(String bootstrap) { this.bootstrap = bootstrap; }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static ObjectNode put(ObjectNode out, String name, byte[] bytes) {
        return out.put(name, bytes == null ? null : Base64.getEncoder().encodeToString(bytes));
    }

    static Map<String, String> texts(JsonNode object) {
        Map<String, String> out = new HashMap<>();
        object.fields().forEachRemaining(e -> out.put(e.getKey(), e.getValue().asText()));
        return out;
    }

    Map<String, Object> config(JsonNode extra) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        if (extra != null) texts(extra).forEach(config::put);
        return config;
    }

    static TopicPartition partition(JsonNode op) {
        return new TopicPartition(op.get("topic").asText(), op.get("partition").asInt());
    }

    void create(JsonNode op) throws Exception {
        Map<String, String> config = texts(op.get("config"));
        try (Admin admin = Admin.create(config(null))) {
            admin.createTopics(List.of(new NewTopic(op.get("topic").asText(),
                op.get("partitions").asInt(), (short) 1).configs(config))).all().get();
        }
    }

    void byTime(JsonNode op, ObjectNode out) throws Exception {
        ArrayNode offsets = out.putArray("offsets");
        try (Admin admin = Admin.create(config(null))) {
            for (JsonNode timestamp : op.get("timestamps")) {
                TopicPartition tp = partition(op);
                offsets.add(admin.listOffsets(Map.of(tp, OffsetSpec.forTimestamp(
                    timestamp.asLong()))).partitionResult(tp).get().offset());
            }
        }
    }

    void produce(JsonNode op, ObjectNode out) throws Exception {
        String name = op.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        boolean transactional = op.get("config").has("transactional.id");
        if (producer == null) {
            producer = new KafkaProducer<>(config(op.get("config")), new ByteArraySerializer(),
                new ByteArraySerializer());
            if (transactional) producer.initTransactions();
            producers.put(name, producer);
        }
        if (transactional && inTransaction.add(name)) producer.beginTransaction();
        TopicPartition tp = partition(op);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode r : op.get("records")) {
            Long timestamp = r.hasNonNull("timestamp") ? r.get("timestamp").asLong() : null;
            var record = new ProducerRecord<>(tp.topic(), tp.partition(), timestamp,
                bytes(r.get("key")), bytes(r.get("value")));
            for (JsonNode h : r.path("headers")) {
                record.headers().add(h.get(0).asText(), bytes(h.get(1)));
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        ArrayNode offsets = out.putArray("offsets");
        for (Future<RecordMetadata> f : sent) offsets.add(f.get().offset());
    }

    void end(JsonNode op) {
        String name = op.get("producer").asText();
        if (op.get("commit").asBoolean()) producers.get(name).commitTransaction();
        else producers.get(name).abortTransaction();
        inTransaction.remove(name);
    }

    void consume(JsonNode op, ObjectNode out) {
        Map<String, Object> config = config(null);
        config.put("isolation.level", op.get("isolation").asText());
        config.put("enable.auto.commit", "false");
        TopicPartition tp = partition(op);
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            out.put("start", consumer.beginningOffsets(List.of(tp)).get(tp)).put("end", end);
            ArrayNode rows = out.putArray("rows");
            while (consumer.position(tp) < end) {
                for (var r : consumer.poll(Duration.ofMillis(500))) {
                    if (r.offset() >= end) continue;
                    ObjectNode row = rows.addObject();
                    row.put("offset", r.offset()).put("timestamp", r.timestamp())
                        .put("timestamp_type", r.timestampType().toString());
                    put(row, "key", r.key());
                    put(row, "value", r.value());
                    ArrayNode headers = row.putArray("headers");
                    for (Header h : r.headers()) {
                        ObjectNode one = headers.addObject().put("key", h.key());
                        put(one, "value", h.value());
                    }
                }
            }
        }
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        return out;
    }

    /** The bytes of a payload as Kafka decompresses it, or the exception. */
    static void decompress(JsonNode op, ObjectNode out) {
        ArrayNode all = out.putArray("results");
        CompressionType type = CompressionType.forId(op.get("codec").asInt());
        for (JsonNode one : op.get("bytes")) {
            ObjectNode result = all.addObject();
            try (InputStream in = Compression.of(type).build().wrapForInput(
                    ByteBuffer.wrap(bytes(one)), (byte) op.get("magic").asInt(),
                    BufferSupplier.NO_CACHING)) {
                put(result, "bytes", in.readAllBytes());
            } catch (Throwable e) {
                result.put("error", e.toString());
            }
        }
    }

    static void row(ArrayNode rows, org.apache.kafka.common.record.internal.Record r,
            RecordBatch batch) {
        TimestampType type = batch.magic() < 2 && r.hasMagic((byte) 0)
            ? TimestampType.NO_TIMESTAMP_TYPE : batch.timestampType();
        ObjectNode row = JSON.createObjectNode();
        row.put("offset", r.offset()).put("timestamp", r.timestamp())
            .put("timestamp_type", type.id).put("sequence", r.sequence());
        put(row, "key", bytes(r.key()));
        put(row, "value", bytes(r.value()));
        ArrayNode headers = row.putArray("headers");
        for (Header h : r.headers()) {
            put(headers.addObject().put("key", h.key()), "value", h.value());
        }
        rows.add(row);
    }

    /** The records of each log file, batch by batch, checked as a consumer checks them. */
    static void records(JsonNode op, ObjectNode out) throws Exception {
        ArrayNode all = out.putArray("results");
        for (JsonNode one : op.get("bytes")) {
            ObjectNode result = all.addObject();
            ArrayNode rows = result.putArray("rows");
            File file = File.createTempFile("records", ".log");
            Files.write(file.toPath(), bytes(one));
            try (FileRecords log = FileRecords.open(file)) {
                for (FileLogInputStream.FileChannelRecordBatch batch : log.batches()) {
                    batch.ensureValid();
                    for (var r : batch) row(rows, r, batch);
                }
            } catch (Throwable e) {
                result.put("error", e.toString());
            } finally {
                file.delete();
            }
        }
    }

    void handle(JsonNode op, ObjectNode out) throws Exception {
        switch (op.get("op").asText()) {
            case "create" -> create(op);
            case "produce" -> produce(op, out);
            case "end" -> end(op);
            case "consume" -> consume(op, out);
            case "by_time" -> byTime(op, out);
            case "delete_records" -> {
                try (Admin admin = Admin.create(config(null))) {
                    admin.deleteRecords(Map.of(partition(op),
                        RecordsToDelete.beforeOffset(op.get("before").asLong()))).all().get();
                }
            }
            case "decompress" -> decompress(op, out);
            case "records" -> records(op, out);
            case "utf8" -> {
                ArrayNode texts = out.putArray("texts");
                for (JsonNode b : op.get("bytes")) {
                    texts.add(new String(bytes(b), StandardCharsets.UTF_8));
                }
            }
            default -> throw new IllegalArgumentException("unknown op " + op);
        }
    }

    public static void main(String[] args) throws Exception {
        Client client = new Client(args[0]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var stdout = new FileOutputStream(FileDescriptor.out);
        var out = new PrintStream(stdout, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                client.handle(JSON.readTree(line), answer);
            } catch (Exception e) {
                answer.put("error", e.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        // A producer with an open transaction must leave it open: no close, no abort.
        Runtime.getRuntime().halt(0);
    }
}
