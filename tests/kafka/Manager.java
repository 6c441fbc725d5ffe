// Starts and shuts down Apache Kafka's own LogManager on log directories, without its background
// tasks and its cleaner, as a broker of epoch 5 would.
//
//   java -cp 'lib/*' Manager.java LOG_DIR ... [key=value ...]
//
// Prints the partitions that it held, or the exception that ended its start. The directories are
// changed: give it copies.
import java.io.File;
import java.util.*;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

public class Manager {
    public static void main(String[] args) throws Exception {
        List<File> dirs = new ArrayList<>();
        Properties props = new Properties();
        for (String arg : args) {
            String[] kv = arg.split("=", 2);
            if (kv.length == 2) props.put(kv[0], kv[1]); else dirs.add(new File(arg));
        }
        LogConfig config = new LogConfig(props);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        ConfigRepository none = resource -> new Properties();
        try {
            LogManager manager = new LogManagerBuilder().setLogDirs(dirs).setConfigRepository(none)
                .setInitialDefaultConfig(config).setCleanerConfig(new CleanerConfig(false))
                .setRecoveryThreadsPerDataDir(2).setScheduler(scheduler)
                .setProducerStateManagerConfig(Integer.MAX_VALUE, false)
                .setBrokerTopicStats(new BrokerTopicStats())
                .setLogDirFailureChannel(new LogDirFailureChannel(dirs.size())).build();
            try {
                manager.loadLogs(config, CollectionConverters.asScala(
                    new HashMap<String, LogConfig>()), log -> false);
                List<String> names = new ArrayList<>();
                for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs()))
                    names.add(log.topicPartition().toString());
                Collections.sort(names);
                names.forEach(System.out::println);
            } finally {
                scheduler.shutdown(); // what it was left to do is done, as at a broker's end
                manager.shutdown(5L);
            }
        } catch (Throwable e) {
            System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
