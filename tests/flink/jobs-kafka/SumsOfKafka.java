package jobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts and adds up the numbers of a topic, by their rest when divided by five, and writes `key count sum` for each.
 *
 *   --brokers HOST:PORT   --topic orders   --output FOLDER
 *
 * and what Arguments knows. The uids are orders-source, orders-sums and orders-lines.
 */
public final class SumsOfKafka {
    private SumsOfKafka() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments.text("brokers", ""))
                .setTopics(arguments.text("topic", "orders"))
                .setGroupId("sums")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        write(arguments, env.fromSource(source, WatermarkStrategy.noWatermarks(), "orders", Types.STRING)
                .uid("orders-source"));
        env.execute("sums of Kafka");
    }

    static void write(Arguments arguments, DataStream<String> orders) {
        orders.map(Long::parseLong).returns(Types.LONG).uid("orders-numbers")
                .keyBy(number -> number % 5, Types.LONG)
                .process(new Sums(), Types.STRING).uid("orders-sums")
                .process(new Lines(arguments.text("output", "")), Types.STRING).uid("orders-lines");
    }

    static final class Sums extends KeyedProcessFunction<Long, Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ValueState<Long> sum;

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            count = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("count", Types.LONG));
            sum = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("sum", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            count.update((count.value() == null ? 0 : count.value()) + 1);
            sum.update((sum.value() == null ? 0 : sum.value()) + number);
            output.collect(context.getCurrentKey() + "\t" + count.value() + "\t" + sum.value());
        }
    }
}
