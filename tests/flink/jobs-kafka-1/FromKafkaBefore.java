package jobs;

import java.util.Arrays;
import java.util.Properties;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaConsumer;

/** Reads topics by the consumer that Flink had before its KafkaSource; the arguments are those of FromKafka. */
@SuppressWarnings("deprecation")
public final class FromKafkaBefore {
    private FromKafkaBefore() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", arguments.text("brokers", ""));
        properties.setProperty("group.id", "orders");
        FlinkKafkaConsumer<String> consumer = new FlinkKafkaConsumer<>(
                Arrays.asList(arguments.text("topics", "orders").split(",")), new SimpleStringSchema(), properties);
        env.addSource(consumer.setStartFromEarliest()).name("orders").uid("orders-source")
                .addSink(new DiscardingSink<>()).name("nowhere").uid("nowhere-sink");
        env.execute("from Kafka");
    }
}
