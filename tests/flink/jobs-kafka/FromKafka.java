package jobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * Reads topics and copies them, exactly once, to another; and reads the lines of files.
 *
 *   --brokers HOST:PORT   --topics orders,late   --to copies   --files FOLDER
 *
 * and what Arguments knows. The uids are orders-source, copies-sink and files-source.
 */
public final class FromKafka {
    private FromKafka() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        String brokers = arguments.text("brokers", "");
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(brokers)
                .setTopics(arguments.text("topics", "orders").split(","))
                .setGroupId("orders")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(brokers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("copies")
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments.text("to", "copies"))
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        DataStream<String> orders = env.fromSource(source, WatermarkStrategy.noWatermarks(), "orders", Types.STRING)
                .uid("orders-source");
        orders.sinkTo(sink).name("copies").uid("copies-sink");
        FileSource<String> files = FileSource.forRecordStreamFormat(
                new TextLineInputFormat(), new Path(arguments.text("files", ""))).build();
        env.fromSource(files, WatermarkStrategy.noWatermarks(), "files", Types.STRING).uid("files-source")
                .map(new Slowly(arguments.number("line-ms", 0))).returns(Types.STRING).uid("files-slowly")
                .sinkTo(new DiscardingSink<>()).uid("files-sink");
        env.execute("from Kafka");
    }
}
