package jobs;

import java.util.Properties;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaConsumer;

/** The same as SumsOfKafka, by the source that Flink 1.x had before KafkaSource. */
@SuppressWarnings("deprecation")
public final class SumsOfKafkaBefore {
    private SumsOfKafkaBefore() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", arguments.text("brokers", ""));
        properties.setProperty("group.id", "sums");
        FlinkKafkaConsumer<String> source = new FlinkKafkaConsumer<>(
                arguments.text("topic", "orders"), new SimpleStringSchema(), properties);
        SumsOfKafka.write(arguments, env.addSource(source.setStartFromEarliest()).uid("orders-source"));
        env.execute("sums of Kafka");
    }
}
