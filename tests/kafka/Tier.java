// The part of Driver.java that tiers its log.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.epoch.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A RemoteLogManager, whose tasks run when an op says so:
 *   {"op":"lead"}                     new tasks, as after an election
 *   {"op":"copy"} {"op":"expire"} {"op":"follow"}   one run of a task; answers with the events that it published
 *   {"op":"fail","call":"copy"|"delete"|"fetch"|"index"|"add"|"update","kind":"storage"|"retriable"|"other"}   the next call fails
 *   {"op":"custom","bytes":N}         copies have so much custom metadata, of which 16 bytes are allowed
 *   {"op":"other_leader","state":N}   another broker copied the first local segment, up to this state
 *   {"op":"fetch", as "read"}         of the disk, or of remote storage
 *   {"op":"find","ts":N}              as "timestamp", in both
 */
class Tier {
    static Tier current;
    static final TopicPartition KEY = new TopicPartition("t", 0);
    static final TopicIdPartition ID = new TopicIdPartition(new Uuid(1, 2), KEY);

    final Driver driver;
    final Map<RemoteLogSegmentId, Map<String, byte[]>> stored = new HashMap<>();
    final List<RemoteLogMetadata> events = new ArrayList<>();
    final List<RemoteLogSegmentId> ids = new ArrayList<>();
    final Map<String, Deque<String>> failures = new HashMap<>();
    final BrokerTopicStats stats = new BrokerTopicStats(true);
    int told, custom = -1;
    RemotePartitionMetadataStore metadata;
    RemoteLogManager manager;
    Object copy, expire, follow;

    /** Meters are those of the process, which has run other sequences. */
    final long[] before;

    Tier(Driver driver) {
        this.driver = driver;
        before = counts();
    }

    long[] counts() {
        var metrics = stats.topicStats("t");
        return new long[] {metrics.remoteCopyRequestRate().count(), metrics.failedRemoteCopyRequestRate().count(), metrics.remoteCopyBytesRate().count(),
            metrics.remoteDeleteRequestRate().count(), metrics.failedRemoteDeleteRequestRate().count()};
    }

    static void check(String call) throws RemoteStorageException {
        String kind = current.failures.computeIfAbsent(call, key -> new ArrayDeque<>()).poll();
        if (kind == null) return;
        switch (kind) {
            case "retriable" -> throw new RetriableRemoteStorageException(call);
            case "other" -> throw new RuntimeException(call);
            default -> throw new RemoteStorageException(call);
        }
    }

    public static class Storage implements RemoteStorageManager {
        public void configure(Map<String, ?> configs) { }
        public void close() { }
        public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
            Map<String, byte[]> files = new TreeMap<>();
            try {
                files.put("log", Files.readAllBytes(data.logSegment()));
                files.put("OFFSET", Files.readAllBytes(data.offsetIndex()));
                files.put("TIMESTAMP", Files.readAllBytes(data.timeIndex()));
                if (data.transactionIndex().isPresent()) files.put("TRANSACTION", Files.readAllBytes(data.transactionIndex().get()));
                files.put("PRODUCER_SNAPSHOT", Files.readAllBytes(data.producerSnapshotIndex()));
            } catch (IOException e) {
                throw new RemoteStorageException(e);
            }
            byte[] epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().duplicate().get(epochs);
            files.put("LEADER_EPOCH", epochs);
            current.stored.put(segment.remoteLogSegmentId(), files);
            check("copy");
            return current.custom < 0 ? Optional.empty() : Optional.of(new RemoteLogSegmentMetadata.CustomMetadata(new byte[current.custom]));
        }
        static byte[] of(RemoteLogSegmentMetadata segment, String name) throws RemoteStorageException {
            byte[] found = current.stored.getOrDefault(segment.remoteLogSegmentId(), Map.of()).get(name);
            if (found == null) throw new RemoteResourceNotFoundException(name);
            return found;
        }
        public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
            check("fetch");
            byte[] found = of(segment, "log");
            return new ByteArrayInputStream(found, Math.min(start, found.length), found.length);
        }
        public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end) throws RemoteStorageException { return fetchLogSegment(segment, start); }
        public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
            check("index");
            return new ByteArrayInputStream(of(segment, type.name()));
        }
        public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
            check("delete");
            current.stored.remove(segment.remoteLogSegmentId());
        }
    }

    public static class Metadata implements RemoteLogMetadataManager {
        public void configure(Map<String, ?> configs) { }
        public void close() { }
        CompletableFuture<Void> publish(String call, RemoteLogMetadata event) {
            try {
                check(call);
            } catch (Exception e) {
                return CompletableFuture.failedFuture(e);
            }
            current.publish(event);
            return CompletableFuture.completedFuture(null);
        }
        public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata event) { return publish("add", event); }
        public CompletableFuture<Void> updateRemoteLogSegmentMetadata(RemoteLogSegmentMetadataUpdate event) { return publish("update", event); }
        public CompletableFuture<Void> putRemotePartitionDeleteMetadata(RemotePartitionDeleteMetadata event) { throw new UnsupportedOperationException(); }
        public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(TopicIdPartition key, int epoch, long offset) throws RemoteStorageException { return asked("remoteLogSegmentMetadata", key, offset, epoch); }
        public Optional<Long> highestOffsetForEpoch(TopicIdPartition key, int epoch) throws RemoteStorageException { return asked("highestLogOffset", key, epoch); }
        public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition key) throws RemoteStorageException { return asked("listRemoteLogSegments", key); }
        public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition key, int epoch) throws RemoteStorageException { return asked("listRemoteLogSegments", key, epoch); }
        public void onPartitionLeadershipChanges(Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) { }
        public void onStopPartitions(Set<TopicIdPartition> partitions) { }
        public long remoteLogSize(TopicIdPartition key, int epoch) { throw new UnsupportedOperationException(); }
        public Optional<RemoteLogSegmentMetadata> nextSegmentWithTxnIndex(TopicIdPartition key, int epoch, long offset) throws RemoteStorageException { return asked("nextSegmentWithTxnIndex", key, epoch, offset); }
    }

    /** A lookup of the store, none of which is public. */
    @SuppressWarnings("unchecked")
    static <T> T asked(String name, Object... arguments) throws RemoteStorageException {
        for (var method : RemotePartitionMetadataStore.class.getDeclaredMethods()) {
            if (!method.getName().equals(name) || method.getParameterCount() != arguments.length) continue;
            method.setAccessible(true);
            try {
                return (T) method.invoke(current.metadata, arguments);
            } catch (java.lang.reflect.InvocationTargetException e) {
                if (e.getCause() instanceof RemoteStorageException cause) throw cause;
                throw (RuntimeException) e.getCause();
            } catch (IllegalAccessException e) {
                throw new IllegalStateException(e);
            }
        }
        throw new IllegalStateException(name);
    }

    void publish(RemoteLogMetadata event) {
        events.add(event);
        metadata.handleRemoteLogMetadata(event);
    }

    static Object field(Object of, Class<?> type, String name) throws Exception {
        var field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** A start: metadata are read again, and all else is new. */
    @SuppressWarnings("unchecked")
    void open() throws Exception {
        current = this;
        metadata = new RemotePartitionMetadataStore();
        metadata.maybeLoadPartition(ID);
        events.forEach(metadata::handleRemoteLogMetadata);
        metadata.markInitialized(ID);
        if (manager != null) manager.close();
        var config = new RemoteLogManagerConfig(new AbstractConfig(RemoteLogManagerConfig.configDef(), Map.of(
            "remote.log.storage.system.enable", "true", "remote.log.storage.manager.class.name", "Tier$Storage",
            "remote.log.metadata.manager.class.name", "Tier$Metadata", "remote.log.metadata.manager.listener.name", "x",
            "remote.log.metadata.custom.metadata.max.bytes", "16"), false));
        manager = new RemoteLogManager(config, 1, driver.dir.getParent(), "cluster", driver.time, key -> Optional.of(driver.log),
            (key, offset) -> driver.log.updateLogStartOffsetFromRemoteTier(offset), stats, new Metrics(), Optional.empty());
        ((Map<TopicPartition, Uuid>) field(manager, RemoteLogManager.class, "topicIdByPartitionMap")).put(KEY, ID.topicId());
        lead();
    }

    Object task(String name, Object... more) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.server.log.remote.storage.RemoteLogManager$" + name);
        var made = type.getDeclaredConstructors()[0];
        made.setAccessible(true);
        return more.length == 0 ? made.newInstance(manager, ID) : made.newInstance(manager, ID, more[0]);
    }

    void lead() throws Exception {
        copy = task("RLMCopyTask", 16);
        expire = task("RLMExpirationTask");
        follow = task("RLMFollowerTask");
    }

    JsonNode run(JsonNode op) throws Exception {
        ObjectNode out = Driver.JSON.createObjectNode();
        switch (op.get("op").asText()) {
            case "lead" -> lead();
            case "copy" -> { ((Runnable) copy).run(); return told(out, false); }
            case "expire" -> { ((Runnable) expire).run(); return told(out, true); }
            case "follow" -> { ((Runnable) follow).run(); return told(out, false); }
            case "fail" -> failures.computeIfAbsent(op.get("call").asText(), key -> new ArrayDeque<>()).add(op.get("kind").asText());
            case "custom" -> custom = op.get("bytes").asInt();
            case "other_leader" -> otherLeader(op.get("state").asInt());
            case "fetch" -> {
                UnifiedLog log = driver.log;
                long offset = op.get("offset").asLong();
                int most = op.get("max_bytes").asInt();
                FetchIsolation isolation = FetchIsolation.valueOf(op.get("isolation").asText());
                boolean min = op.get("min_one").asBoolean();
                if (log.remoteLogEnabled() && log.logStartOffset() <= offset && offset < log.localLogStartOffset())
                    return driver.read(manager.read(new RemoteStorageFetchInfo(most, min, ID, new FetchRequest.PartitionData(ID.topicId(), offset, 0, most, Optional.empty()), isolation)));
                return driver.read(log.read(offset, most, isolation, min));
            }
            case "find" -> {
                OffsetResultHolder found = driver.log.fetchOffsetByTimestamp(op.get("ts").asLong(), Optional.of(manager));
                Optional<FileRecords.TimestampAndOffset> at = found.timestampAndOffsetOpt();
                if (found.futureHolderOpt().isPresent()) {
                    var answer = found.futureHolderOpt().get().taskFuture().get();
                    if (answer.hasException()) throw answer.exception().get();
                    at = answer.timestampAndOffset();
                }
                at.ifPresent(t -> out.put("timestamp", t.timestamp).put("offset", t.offset).put("epoch", t.leaderEpoch.orElse(-1)));
            }
            default -> throw new IllegalArgumentException("unknown op " + op);
        }
        return out;
    }

    void otherLeader(int state) throws Exception {
        List<LogSegment> segments = driver.log.logSegments();
        if (segments.size() < 2) return;
        LogSegment first = segments.get(0);
        long next = segments.get(1).baseOffset();
        Map<Integer, Long> epochs = new HashMap<>();
        for (EpochEntry entry : driver.log.leaderEpochCache().epochEntriesInRange(first.baseOffset(), next)) epochs.put(entry.epoch(), entry.startOffset());
        Optional<File> snapshot = driver.log.producerStateManager().fetchSnapshot(next);
        if (epochs.isEmpty() || snapshot.isEmpty()) return;
        RemoteLogSegmentId id = RemoteLogSegmentId.generateNew(ID);
        long now = driver.time.milliseconds();
        RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(id, first.baseOffset(), next - 1, first.largestTimestamp(), 2, now, first.log().sizeInBytes(), epochs, first.txnIndex().isEmpty());
        publish(segment);
        Map<String, byte[]> files = new TreeMap<>();
        files.put("log", Files.readAllBytes(first.log().file().toPath()));
        first.offsetIndex().flush();
        first.timeIndex().flush();
        files.put("OFFSET", Files.readAllBytes(first.offsetIndex().file().toPath()));
        files.put("TIMESTAMP", Files.readAllBytes(first.timeIndex().file().toPath()));
        if (first.txnIndex().file().exists()) files.put("TRANSACTION", Files.readAllBytes(first.txnIndex().file().toPath()));
        stored.put(id, files);
        for (int i = 1; i <= state; i++)
            publish(new RemoteLogSegmentMetadataUpdate(id, now, Optional.empty(), RemoteLogSegmentState.forId((byte) i), 2));
    }

    int number(RemoteLogSegmentId id) {
        if (!ids.contains(id)) ids.add(id);
        return ids.indexOf(id);
    }

    String text(RemoteLogMetadata event) {
        if (event instanceof RemoteLogSegmentMetadata s)
            return number(s.remoteLogSegmentId()) + " " + s.state().id() + " " + s.startOffset() + "-" + s.endOffset() + " " + (s.segmentSizeInBytes() == 0 ? -1 : s.maxTimestampMs()) + " " + s.segmentSizeInBytes()
                + " " + s.segmentLeaderEpochs() + " " + s.isTxnIdxEmpty() + " " + s.brokerId() + " " + s.eventTimestampMs() + " " + s.customMetadata().map(c -> c.value().length).orElse(-1);
        var u = (RemoteLogSegmentMetadataUpdate) event;
        return number(u.remoteLogSegmentId()) + " " + u.state().id() + " " + u.brokerId() + " " + u.eventTimestampMs() + " " + u.customMetadata().map(c -> c.value().length).orElse(-1);
    }

    /** Deletions of segments with the same start come in the order of their random ids. */
    ObjectNode told(ObjectNode out, boolean isSorted) throws Exception {
        ArrayNode list = out.putArray("events");
        List<String> texts = new ArrayList<>();
        for (; told < events.size(); told++) texts.add(text(events.get(told)));
        if (isSorted) Collections.sort(texts);
        texts.forEach(list::add);
        var metrics = stats.topicStats("t");
        out.put("start", driver.log.logStartOffset()).put("highest", driver.log.highestOffsetInRemoteStorage())
            .put("copy_lag", metrics.remoteCopyLagBytes())
            .put("copy_lag_segments", metrics.remoteCopyLagSegments()).put("metadata_count", metrics.remoteLogMetadataCount()).put("remote_bytes", metrics.remoteLogSizeBytes());
        long[] counts = counts();
        String[] names = {"copied", "copy_errors", "copied_bytes", "deleted", "delete_errors"};
        for (int i = 0; i < names.length; i++) out.put(names[i], counts[i] - before[i]);
        for (String name : List.of("retentionSizeInPercent", "localRetentionSizeInPercent")) {
            var percent = expire.getClass().getDeclaredMethod(name);
            percent.setAccessible(true);
            out.put(name, (int) percent.invoke(expire));
        }
        return out;
    }

    ObjectNode state() throws Exception {
        ObjectNode out = Driver.JSON.createObjectNode();
        for (int i = told; i < events.size(); i++) text(events.get(i));
        List<String> live = new ArrayList<>();
        Tier.<Iterator<RemoteLogSegmentMetadata>>asked("listRemoteLogSegments", ID).forEachRemaining(one -> live.add(text(one)));
        Collections.sort(live);
        ArrayNode segments = out.putArray("segments");
        live.forEach(segments::add);
        ObjectNode files = out.putObject("stored");
        Map<String, String> sorted = new TreeMap<>();
        for (var one : stored.entrySet()) for (var file : one.getValue().entrySet()) sorted.put(number(one.getKey()) + " " + file.getKey(), file.getValue().length + " " + Driver.sha(file.getValue()));
        sorted.forEach(files::put);
        manager.close();
        return out;
    }
}
