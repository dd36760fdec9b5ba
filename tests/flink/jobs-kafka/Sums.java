package jobs;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/**
 * Counts and adds up the numbers of files or of a topic, as SumsOfKafka does, and writes the lines to a sink which shows
 * them with a checkpoint.
 *
 *   --source files|kafka   --from FOLDER|TOPIC   --sink lines|files|kafka   --to FOLDER|TOPIC   --brokers HOST:PORT
 *   --prefix sums
 *
 * and what Arguments knows. `lines` writes each at once. The uids are sums-source, orders-numbers, orders-sums and
 * sums-sink.
 */
public final class Sums {
    private Sums() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        DataStream<String> orders = source(arguments, env).uid("sums-source");
        DataStream<String> sums = orders.map(Long::parseLong).returns(Types.LONG).uid("orders-numbers")
                .keyBy(number -> number % 5, Types.LONG)
                .process(new SumsOfKafka.Sums(), Types.STRING).uid("orders-sums");
        if (arguments.text("sink", "").equals("lines")) {
            sums.process(new Lines(arguments.text("to", "")), Types.STRING).uid("sums-sink");
        } else {
            sums.sinkTo(sink(arguments)).uid("sums-sink");
        }
        env.execute(arguments.text("name", "sums"));
    }

    private static SingleOutputStreamOperator<String> source(
            Arguments arguments, StreamExecutionEnvironment env) {
        String from = arguments.text("from", "");
        if (arguments.text("source", "").equals("files")) {
            FileSource<String> files = FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(from))
                    .monitorContinuously(Duration.ofMillis(200))
                    .build();
            return env.fromSource(files, WatermarkStrategy.noWatermarks(), "numbers", Types.STRING);
        }
        KafkaSource<String> topic = KafkaSource.<String>builder()
                .setBootstrapServers(arguments.text("brokers", ""))
                .setTopics(from)
                .setGroupId(from)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        return env.fromSource(topic, WatermarkStrategy.noWatermarks(), "numbers", Types.STRING);
    }

    private static Sink<String> sink(Arguments arguments) {
        String to = arguments.text("to", "");
        if (arguments.text("sink", "").equals("files")) {
            return FileSink.forRowFormat(new Path(to), new SimpleStringEncoder<String>())
                    .withRollingPolicy(OnCheckpointRollingPolicy.build())
                    .build();
        }
        return KafkaSink.<String>builder()
                .setBootstrapServers(arguments.text("brokers", ""))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(arguments.text("prefix", "sums"))
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(to)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
    }
}
