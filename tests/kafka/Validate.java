// Puts records before Apache Kafka's own checks of an append: UnifiedLog.analyzeAndValidateRecords, then LogValidator.
//
//   java -cp 'lib/*' Validate.java WORK_DIR < cases.jsonl > verdicts.jsonl
//
// A case: {"records": BASE64, "origin": "CLIENT", "assign": true, "epoch": 3, "offset": 100, "now": ms, "config": {...}}.
// Its verdict: the analysis and the validated records, or the exception's class and text.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Validate {
    static final ObjectMapper JSON = new ObjectMapper();

    /** A clock that stands still. */
    record StillTime(long now) implements Time {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000L; }
        public void sleep(long ms) {}
        public void waitObject(Object o, Supplier<Boolean> condition, long deadlineMs) { throw new UnsupportedOperationException(); }
        public <T> T waitForFuture(CompletableFuture<T> future, long deadlineNanos) { throw new UnsupportedOperationException(); }
    }

    static final LogValidator.MetricsRecorder NOTHING = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };

    static JsonNode run(UnifiedLog log, Method analyze, JsonNode given) throws Throwable {
        Properties config = new Properties();
        given.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        LogConfig settings = new LogConfig(config);
        log.updateConfig(settings);
        byte[] bytes = Base64.getDecoder().decode(given.get("records").asText());
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        AppendOrigin origin = AppendOrigin.valueOf(given.get("origin").asText());
        boolean assign = given.get("assign").asBoolean();
        int epoch = given.get("epoch").asInt();
        LogAppendInfo info;
        try {
            info = (LogAppendInfo) analyze.invoke(log, records, origin, origin == AppendOrigin.REPLICATION, !assign, epoch);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
        ObjectNode out = JSON.createObjectNode();
        out.putArray("info").add(info.firstOffset()).add(info.lastOffset()).add((long) info.lastLeaderEpoch().orElse(-1)).add(info.maxTimestamp())
            .add((long) info.sourceCompression().id).add((long) info.validBytes()).add(info.firstOrLastOffsetOfFirstBatch());
        if (!assign || info.validBytes() <= 0) return out;
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(given.get("offset").asLong());
        MemoryRecords valid = MemoryRecords.readableRecords(ByteBuffer.wrap(Arrays.copyOf(bytes, info.validBytes())));
        Compression target = BrokerCompressionType.targetCompression(settings.compression, info.sourceCompression());
        LogValidator.ValidationResult result = new LogValidator(valid, new TopicPartition("t", 0), new StillTime(given.get("now").asLong()),
            info.sourceCompression(), target, settings.compact, RecordBatch.CURRENT_MAGIC_VALUE, settings.messageTimestampType,
            settings.messageTimestampBeforeMaxMs, settings.messageTimestampAfterMaxMs, epoch, origin)
            .validateMessagesAndAssignOffsets(offset, NOTHING, BufferSupplier.NO_CACHING);
        ByteBuffer made = result.validatedRecords().buffer().duplicate();
        byte[] raw = new byte[made.remaining()];
        made.get(raw);
        return out.put("made", Base64.getEncoder().encodeToString(raw)).put("next", offset.value).put("max_timestamp", result.maxTimestampMs())
            .put("changed", result.messageSizeMaybeChanged());
    }

    static JsonNode failed(Throwable e) {
        ObjectNode out = JSON.createObjectNode().put("error", e.getClass().getSimpleName()).put("message", e.getMessage());
        if (e instanceof RecordValidationException v) {
            out.put("message", v.invalidException().getMessage()).put("cause", v.invalidException().getClass().getSimpleName());
            ArrayNode errors = out.putArray("errors");
            v.recordErrors().forEach(r -> errors.addArray().add(r.batchIndex).add(r.message));
        }
        return out;
    }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        File dir = new File(args[0], "t-0");
        dir.mkdirs();
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(new Properties()), 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM, 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
        Method analyze = UnifiedLog.class.getDeclaredMethod("analyzeAndValidateRecords", MemoryRecords.class, AppendOrigin.class, boolean.class,
            boolean.class, int.class);
        analyze.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode verdict;
            try {
                verdict = run(log, analyze, JSON.readTree(line));
            } catch (Throwable e) {
                verdict = failed(e);
            }
            out.println(JSON.writeValueAsString(verdict));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }
}
