// What Kafka's own readers make of bytes: payloads, names and the small files of a data directory.
//
//   java -cp 'lib/*' Storage.java SCRATCH_FILE < questions
//
// A question is a line `KIND HEX`, or `payload:CODEC:MAGIC HEX`; the answer is one JSON line,
// {"value": ...} or {"error": class, "message": text, "cause": text}.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.metadata.properties.*;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.log.*;

public class Storage {
    static final ObjectMapper JSON = new ObjectMapper();

    static JsonNode payload(int codec, int magic, byte[] bytes) throws Exception {
        InputStream in = Compression.of(CompressionType.forId(codec)).build()
            .wrapForInput(ByteBuffer.wrap(bytes), (byte) magic, BufferSupplier.NO_CACHING);
        return TextNode.valueOf(HexFormat.of().formatHex(in.readAllBytes()));
    }

    static JsonNode properties(File file) throws Exception {
        Properties found = new Properties();
        try (InputStream in = new FileInputStream(file)) {
            found.load(in);
        }
        // Java's strings may hold half a surrogate pair, which no JSON text can.
        ArrayNode out = JSON.createArrayNode();
        for (String key : new TreeSet<>(found.stringPropertyNames())) {
            ArrayNode pair = out.addArray();
            for (String text : List.of(key, found.getProperty(key))) {
                pair.add(HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE)));
            }
        }
        return out;
    }

    static JsonNode owner(File file) throws Exception {
        MetaProperties found = new MetaProperties.Builder(
            PropertiesUtils.readPropertiesFile(file.getPath())).build();
        return JSON.createArrayNode().add(found.version().number())
            .add(found.clusterId().orElse(null))
            .add(found.nodeId().isPresent() ? found.nodeId().getAsInt() : null)
            .add(found.directoryId().map(Object::toString).orElse(null));
    }

    static JsonNode snapshot(File file) throws Exception {
        ArrayNode out = JSON.createArrayNode();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
            var batches = entry.batchMetadata();
            BatchMetadata last = batches.isEmpty() ? null : batches.iterator().next();
            out.addArray().add(entry.producerId()).add(entry.producerEpoch())
                .add(last == null ? -1 : last.lastSeq()).add(entry.lastDataOffset())
                .add(last == null ? 0 : last.offsetDelta()).add(entry.lastTimestamp())
                .add(entry.coordinatorEpoch()).add(entry.currentTxnFirstOffset().orElse(-1));
        }
        return out;
    }

    static JsonNode answer(String kind, byte[] bytes, File file) throws Exception {
        if (!kind.startsWith("payload") && !kind.equals("directory")) {
            Files.write(file.toPath(), bytes);
        }
        LogDirFailureChannel failures = new LogDirFailureChannel(10);
        switch (kind.split(":")[0]) {
            case "payload": {
                String[] parts = kind.split(":");
                return payload(Integer.parseInt(parts[1]), Integer.parseInt(parts[2]), bytes);
            }
            case "offsets": {
                ObjectNode out = JSON.createObjectNode();
                new OffsetCheckpointFile(file, failures).read()
                    .forEach((key, offset) -> out.put(key.toString(), offset));
                return out;
            }
            case "epochs": {
                ArrayNode out = JSON.createArrayNode();
                for (EpochEntry entry : new LeaderEpochCheckpointFile(file, failures).read()) {
                    out.addArray().add(entry.epoch()).add(entry.startOffset());
                }
                return out;
            }
            case "metadata": {
                PartitionMetadata found = new PartitionMetadataFile(file, failures).read();
                return JSON.createArrayNode().add(found.version())
                    .add(found.topicId().toString());
            }
            case "properties": return properties(file);
            case "owner": return owner(file);
            case "snapshot": return snapshot(file);
            case "directory": {
                var found = UnifiedLog.parseTopicPartitionName(
                    new File("/data", new String(bytes, StandardCharsets.UTF_8)));
                return JSON.createArrayNode().add(found.topic()).add(found.partition());
            }
            default: throw new IllegalStateException("no such question: " + kind);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            ObjectNode out = JSON.createObjectNode();
            try {
                out.set("value", answer(parts[0], HexFormat.of().parseHex(parts[1]),
                    new File(args[0])));
            } catch (IllegalStateException e) {
                throw e;
            } catch (Throwable e) {
                out.put("error", e.getClass().getSimpleName()).put("message", e.getMessage())
                    .put("cause", e.getCause() == null ? null : e.getCause().getMessage());
            }
            System.out.println(JSON.writeValueAsString(out));
        }
        System.exit(0);
    }
}
