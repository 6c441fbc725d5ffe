// Kafka's own settings behind a pipe: one JSON object a line in, one a line out.
//
//   java -cp 'lib/*' Config.java < requests > answers
//
//   {"op":"keys","of":"topic"}   {name: [type, default]} of LogConfig, of "broker" (KafkaConfig), or of "metadata"
//   {"op":"value","of":"broker","name":N,"value":TEXT}   the value, or "error" with Kafka's message
//   {"op":"log","broker":{...},"topic":{...}}      {name: value} of the LogConfig that a topic gets
//   {"op":"validate","topic":{...}}                "error" when a topic may not be made with these
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

public class Config {
    static final ObjectMapper JSON = new ObjectMapper();

    static ConfigDef definition(String of) {
        if (of.equals("metadata")) return metadataManager();
        return of.equals("topic") ? LogConfig.configDefCopy() : KafkaConfig.configDef();
    }

    static ConfigDef metadataManager() {
        try {
            var field = org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManagerConfig.class
                .getDeclaredField("CONFIG");
            field.setAccessible(true);
            return (ConfigDef) field.get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static Map<String, String> texts(JsonNode object) {
        Map<String, String> out = new HashMap<>();
        object.fields().forEachRemaining(e -> out.put(e.getKey(), e.getValue().asText()));
        return out;
    }

    static KafkaConfig broker(JsonNode settings) {
        Properties all = new Properties();
        all.putAll(Map.of("process.roles", "broker,controller", "node.id", "1",
            "controller.quorum.voters", "1@127.0.0.1:9093", "controller.listener.names", "C",
            "listeners", "PLAINTEXT://127.0.0.1:9092,C://127.0.0.1:9093",
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,C:PLAINTEXT"));
        all.putAll(texts(settings));
        return new KafkaConfig(all, false);
    }

    static JsonNode handle(JsonNode op) {
        ObjectNode out = JSON.createObjectNode();
        switch (op.get("op").asText()) {
            case "keys" -> definition(op.get("of").asText()).configKeys().forEach((name, key) -> {
                Object value = key.hasDefault() ? key.defaultValue : null;
                out.putArray(name).add(key.type.toString()).add(JSON.valueToTree(value));
            });
            case "value" -> {
                String name = op.get("name").asText();
                ConfigDef.ConfigKey key = definition(op.get("of").asText()).configKeys().get(name);
                Object value = new ConfigDef().define(key).parse(
                    Map.of(name, op.get("value").asText())).get(name);
                out.set("value", JSON.valueToTree(value));
            }
            case "log" -> {
                Properties topic = new Properties();
                topic.putAll(texts(op.get("topic")));
                LogConfig log = LogConfig.fromProps(
                    broker(op.get("broker")).extractLogConfigMap(), topic);
                log.values().forEach((name, value) -> out.set(name, JSON.valueToTree(value)));
            }
            case "validate" -> LogConfig.validate(texts(op.get("topic")));
            default -> throw new IllegalArgumentException("unknown op " + op);
        }
        return out;
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true,
            StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode answer;
            try {
                answer = handle(JSON.readTree(line));
            } catch (Exception e) {
                answer = JSON.createObjectNode().put("error", String.valueOf(e.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }
}
