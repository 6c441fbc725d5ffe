// Apache Kafka's serde, cache, store and partitioner of remote log metadata, one line in, one line out.
//
//   java -cp 'lib/*' RemoteMetadata.java < commands > answers
//
// serde HEX                     "ok HEX TEXT": the value read and written again, and how it prints; or "error CLASS TEXT"
// partition COUNT UUID_HEX N    the metadata partition of partition N
// cache | store                 a new, empty one
// load HEX | init HEX | clear HEX   of the store: the partition of this record (init also of the cache)
// event HEX                     "ok" or "error CLASS TEXT"
// lineage HEX END EPOCHS        whether the segment is within the lineage (epoch:offset, comma separated) of a log that ends at END
// ask HEX EPOCHS OFFSETS        every answer about the record's partition for those epochs and offsets (comma separated);
//                               a segment is the last two bytes of its id, its state, broker and custom metadata
import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.server.log.remote.metadata.storage.*;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

public class RemoteMetadata {
    static final HexFormat HEX = HexFormat.of();
    static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();
    static RemoteLogMetadataCache cache;
    static RemotePartitionMetadataStore store;

    static final Map<String, Method> METHODS = new HashMap<>();

    static Method find(Class<?> type, String name, int count) {
        for (Method method : type.getDeclaredMethods()) {
            if (!method.getName().equals(name) || method.getParameterCount() != count || Modifier.isStatic(method.getModifiers())) continue;
            method.setAccessible(true);
            return method;
        }
        throw new IllegalStateException(type + "." + name);
    }

    static Object call(Object target, String name, Object... arguments) throws Throwable {
        Class<?> type = target.getClass();
        Method method = METHODS.computeIfAbsent(type + name + arguments.length, key -> find(type, name, arguments.length));
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    static TopicIdPartition partition(String hex) {
        return SERDE.deserialize(HEX.parseHex(hex)).topicIdPartition();
    }

    static void event(RemoteLogMetadata metadata) throws Throwable {
        if (store != null) {
            store.handleRemoteLogMetadata(metadata);
        } else if (metadata instanceof RemoteLogSegmentMetadata) {
            call(cache, "addCopyInProgressSegment", metadata);
        } else {
            call(cache, "updateRemoteLogSegmentMetadata", metadata);
        }
    }

    static String segment(RemoteLogSegmentMetadata metadata) {
        String id = Long.toHexString(metadata.remoteLogSegmentId().id().getLeastSignificantBits() & 0xffff);
        String custom = metadata.customMetadata().map(found -> HEX.formatHex(found.value())).orElse("-");
        return id + ":" + metadata.state().id() + ":" + metadata.brokerId() + ":" + custom;
    }

    static String optional(Object found) {
        return found == null || found.equals(Optional.empty()) ? "-" : segment((RemoteLogSegmentMetadata) ((Optional<?>) found).get());
    }

    static String lineage(RemoteLogSegmentMetadata metadata, long end, String epochs) throws Throwable {
        NavigableMap<Integer, Long> lineage = new TreeMap<>();
        for (String one : epochs.split(",")) lineage.put(Integer.parseInt(one.split(":")[0]), Long.parseLong(one.split(":")[1]));
        Method filter = RemoteLogManager.class.getDeclaredMethod("buildFilteredLeaderEpochMap", NavigableMap.class);
        Method within = RemoteLogManager.class.getDeclaredMethod("isRemoteSegmentWithinLeaderEpochs", RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        filter.setAccessible(true);
        within.setAccessible(true);
        return filter.invoke(null, lineage) + " " + within.invoke(null, metadata, end, filter.invoke(null, lineage));
    }

    interface Question { Object ask() throws Throwable; }

    static String answer(Question question) {
        try {
            Object found = question.ask();
            if (found instanceof Iterator) {
                List<String> all = new ArrayList<>();
                ((Iterator<?>) found).forEachRemaining(one -> {
                    RemoteLogSegmentMetadata metadata = (RemoteLogSegmentMetadata) one;
                    all.add(metadata.startOffset() + "=" + segment(metadata));
                });
                return all.toString();
            }
            return String.valueOf(found);
        } catch (Throwable e) {
            return error(e);
        }
    }

    static String ask(TopicIdPartition partition, String[] epochs, String[] offsets) {
        StringBuilder out = new StringBuilder();
        boolean inStore = store != null;
        out.append(answer(() -> {
            Iterator<?> all = (Iterator<?>) (inStore ? call(store, "listRemoteLogSegments", partition) : call(cache, "listAllRemoteLogSegments"));
            TreeMap<String, String> sorted = new TreeMap<>();
            all.forEachRemaining(one -> sorted.put(segment((RemoteLogSegmentMetadata) one), ""));
            return sorted.keySet();
        }));
        for (String text : epochs) {
            int epoch = Integer.parseInt(text);
            out.append("; ").append(epoch);
            out.append(' ').append(answer(() -> ((Optional<?>) (inStore ? call(store, "highestLogOffset", partition, epoch)
                : call(cache, "highestOffsetForEpoch", epoch))).map(Object::toString).orElse("-")));
            out.append(' ').append(answer(() -> inStore ? call(store, "listRemoteLogSegments", partition, epoch) : call(cache, "listRemoteLogSegments", epoch)));
            for (String at : offsets) {
                long offset = Long.parseLong(at);
                out.append(' ').append(answer(() -> optional(inStore ? call(store, "remoteLogSegmentMetadata", partition, offset, epoch)
                    : call(cache, "remoteLogSegmentMetadata", epoch, offset))));
                out.append(' ').append(answer(() -> optional(inStore ? call(store, "nextSegmentWithTxnIndex", partition, epoch, offset)
                    : call(cache, "nextSegmentWithTxnIndex", epoch, offset))));
            }
        }
        return out.toString();
    }

    static String error(Throwable e) {
        String text = String.valueOf(e.getMessage()).replace("\n", "\\n");
        return "error " + e.getClass().getSimpleName() + " " + text;
    }

    static String run(String[] words) throws Throwable {
        switch (words[0]) {
            case "serde": {
                RemoteLogMetadata metadata = SERDE.deserialize(HEX.parseHex(words.length > 1 ? words[1] : ""));
                return "ok " + HEX.formatHex(SERDE.serialize(metadata)) + " " + metadata.toString().replace("\n", "\\n");
            }
            case "partition": {
                ByteBuffer raw = ByteBuffer.wrap(HEX.parseHex(words[2]));
                TopicIdPartition partition = new TopicIdPartition(new Uuid(raw.getLong(), raw.getLong()), new TopicPartition("t", Integer.parseInt(words[3])));
                return "" + new RemoteLogMetadataTopicPartitioner(Integer.parseInt(words[1])).metadataPartition(partition);
            }
            case "cache": cache = new RemoteLogMetadataCache(); store = null; return "ok";
            case "store": store = new RemotePartitionMetadataStore(); return "ok";
            case "load": store.maybeLoadPartition(partition(words[1])); return "ok";
            case "clear": store.clearTopicPartition(partition(words[1])); return "ok";
            case "init":
                if (store != null) store.markInitialized(partition(words[1])); else call(cache, "markInitialized");
                return "ok";
            case "event": event(SERDE.deserialize(HEX.parseHex(words[1]))); return "ok";
            case "lineage": return lineage((RemoteLogSegmentMetadata) SERDE.deserialize(HEX.parseHex(words[1])), Long.parseLong(words[2]), words[3]);
            case "ask": return ask(partition(words[1]), words[2].split(","), words[3].split(","));
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Throwable e) {
                answer = error(e);
            }
            out.println(answer.replace("\r", "\\r"));
        }
        out.flush();
    }
}
