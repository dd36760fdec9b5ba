package jobs;

import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.StreamingFileSink;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer;
import org.apache.flink.streaming.connectors.kafka.KafkaSerializationSchema;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * As Sums, with the sinks that came before KafkaSink and FileSink: FlinkKafkaProducer and StreamingFileSink. The words
 * are those of Sums.
 */
@SuppressWarnings("deprecation")
public final class SumsToSinksBefore {
    private SumsToSinksBefore() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        KafkaSource<String> topic = KafkaSource.<String>builder()
                .setBootstrapServers(arguments.text("brokers", ""))
                .setTopics(arguments.text("from", ""))
                .setGroupId(arguments.text("from", ""))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        DataStream<String> sums = env.fromSource(topic, WatermarkStrategy.noWatermarks(), "numbers", Types.STRING)
                .uid("sums-source")
                .map(Long::parseLong).returns(Types.LONG).uid("orders-numbers")
                .keyBy(number -> number % 5, Types.LONG)
                .process(new SumsOfKafka.Sums(), Types.STRING).uid("orders-sums");
        String to = arguments.text("to", "");
        if (arguments.text("sink", "").equals("files")) {
            sums.addSink(StreamingFileSink.forRowFormat(new Path(to), new SimpleStringEncoder<String>())
                            .withRollingPolicy(OnCheckpointRollingPolicy.build())
                            .build())
                    .uid("sums-sink");
        } else {
            Properties settings = new Properties();
            settings.setProperty("bootstrap.servers", arguments.text("brokers", ""));
            settings.setProperty("transaction.timeout.ms", "600000");
            KafkaSerializationSchema<String> schema = (line, time) -> new ProducerRecord<>(to, line.getBytes());
            FlinkKafkaProducer<String> sink =
                    new FlinkKafkaProducer<>(to, schema, settings, FlinkKafkaProducer.Semantic.EXACTLY_ONCE);
            sink.setTransactionalIdPrefix(arguments.text("prefix", "sums"));
            sums.addSink(sink).uid("sums-sink");
        }
        env.execute(arguments.text("name", "sums"));
    }
}
