// Kafka's MemoryRecordsBuilder behind a pipe: one JSON object a line in, one a line out.
//
//   java -cp 'lib/*' Builder.java < cases > answers
//
//   {"options":{"base_offset":N, "codec":NAME, "level":N|null, "log_append_time":N|null,
//               "producer_id":N, "producer_epoch":N, "base_sequence":N, "is_transactional":B,
//               "is_control_batch":B, "partition_leader_epoch":N, "write_limit":N,
//               "delete_horizon_ms":N},
//    "calls":[["append", OFFSET|null, TIMESTAMP, KEY, VALUE, [[K, V], ...]], ...]}
//   {"marker":["COMMIT"|"ABORT", PRODUCER, EPOCH, COORDINATOR, TIMESTAMP, OFFSET, LEADER_EPOCH]}
// The answer has for each call its result or its exception, and what the builder says of itself.
// Bytes are base64 or null.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.compress.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public class Builder {
    static final ObjectMapper JSON = new ObjectMapper();

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static ByteBuffer buffer(JsonNode node) {
        return node.isNull() ? null : ByteBuffer.wrap(bytes(node));
    }

    static Header[] headers(JsonNode node) {
        Header[] out = new Header[node.size()];
        for (int i = 0; i < out.length; i++) {
            JsonNode key = node.get(i).get(0);
            byte[] value = bytes(node.get(i).get(1));
            out[i] = new RecordHeader(key.isNull() ? "" : key.asText(), value) {
                @Override public String key() { return key.isNull() ? null : super.key(); }
            };
        }
        return out;
    }

    static Compression compression(JsonNode options) {
        CompressionType type = CompressionType.forName(options.get("codec").asText());
        if (options.get("level").isNull()) return Compression.of(type).build();
        int level = options.get("level").asInt();
        switch (type) {
            case GZIP: return Compression.gzip().level(level).build();
            case LZ4: return Compression.lz4().level(level).build();
            case ZSTD: return Compression.zstd().level(level).build();
            default: return Compression.of(type).build();
        }
    }

    static MemoryRecordsBuilder builder(JsonNode o) {
        JsonNode time = o.get("log_append_time");
        return new MemoryRecordsBuilder(new ByteBufferOutputStream(64), RecordBatch.MAGIC_VALUE_V2,
            compression(o),
            time.isNull() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
            o.get("base_offset").asLong(), time.isNull() ? -1 : time.asLong(),
            o.get("producer_id").asLong(), (short) o.get("producer_epoch").asInt(),
            o.get("base_sequence").asInt(), o.get("is_transactional").asBoolean(),
            o.get("is_control_batch").asBoolean(), o.get("partition_leader_epoch").asInt(),
            o.get("write_limit").asInt(), o.get("delete_horizon_ms").asLong());
    }

    static byte[] content(MemoryRecords records) {
        ByteBuffer data = records.buffer().duplicate();
        byte[] out = new byte[data.remaining()];
        data.get(out);
        return out;
    }

    static void call(MemoryRecordsBuilder b, JsonNode c, ObjectNode out) {
        switch (c.get(0).asText()) {
            case "append":
                if (c.get(1).isNull())
                    b.append(c.get(2).asLong(), buffer(c.get(3)), buffer(c.get(4)),
                        headers(c.get(5)));
                else
                    b.appendWithOffset(c.get(1).asLong(), c.get(2).asLong(), buffer(c.get(3)),
                        buffer(c.get(4)), headers(c.get(5)));
                break;
            case "control":
                b.appendControlRecord(c.get(1).asLong(),
                    ControlRecordType.valueOf(c.get(2).asText()), buffer(c.get(3)));
                break;
            case "marker":
                b.appendEndTxnMarker(c.get(1).asLong(), new EndTransactionMarker(
                    ControlRecordType.valueOf(c.get(2).asText()), c.get(3).asInt()));
                break;
            case "room":
                out.put("result", b.hasRoomFor(c.get(1).asLong(), buffer(c.get(2)),
                    buffer(c.get(3)), headers(c.get(4))));
                break;
            case "room_bytes": out.put("result", b.hasRoomFor(c.get(1).asInt())); break;
            case "ratio": b.setEstimatedCompressionRatio((float) c.get(1).asDouble()); break;
            case "override": b.overrideLastOffset(c.get(1).asLong()); break;
            case "state":
                b.setProducerState(c.get(1).asLong(), (short) c.get(2).asInt(), c.get(3).asInt(),
                    c.get(4).asBoolean());
                break;
            case "reopen":
                b.reopenAndRewriteProducerState(c.get(1).asLong(), (short) c.get(2).asInt(),
                    c.get(3).asInt(), c.get(4).asBoolean());
                break;
            case "close_appends": b.closeForRecordAppends(); break;
            case "abort": b.abort(); break;
            case "build": out.put("result", content(b.build())); break;
            default: throw new Error("no call " + c.get(0));
        }
    }

    static void answer(JsonNode given, ObjectNode out) {
        if (given.has("marker")) {
            JsonNode m = given.get("marker");
            out.put("result", content(MemoryRecords.withEndTransactionMarker(m.get(5).asLong(),
                m.get(4).asLong(), m.get(6).asInt(), m.get(1).asLong(), (short) m.get(2).asInt(),
                new EndTransactionMarker(ControlRecordType.valueOf(m.get(0).asText()),
                    m.get(3).asInt()))));
            return;
        }
        MemoryRecordsBuilder b = builder(given.get("options"));
        ArrayNode results = out.putArray("results");
        for (JsonNode c : given.get("calls")) {
            ObjectNode result = results.addObject();
            try {
                call(b, c, result);
            } catch (Exception e) {
                result.put("error", e.getClass().getSimpleName()).put("message", e.getMessage());
            }
            MemoryRecordsBuilder.RecordsInfo info = b.numRecords() == 0 ? null : b.info();
            result.put("num_records", b.numRecords()).put("is_full", b.isFull())
                .put("is_closed", b.isClosed())
                .put("uncompressed_bytes_written", b.uncompressedBytesWritten())
                .put("estimated_size_in_bytes", b.estimatedSizeInBytes());
            if (info != null)
                result.put("max_timestamp", info.maxTimestamp)
                    .put("shallow_offset_of_max_timestamp", info.shallowOffsetOfMaxTimestamp);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Exception e) {
                answer.put("error", e.getClass().getSimpleName()).put("message", e.getMessage());
            }
            out.println(answer);
        }
        out.flush();
    }
}
