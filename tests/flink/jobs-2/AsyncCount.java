package jobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.v2.ValueState;
import org.apache.flink.api.common.state.v2.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts numbers by key as Count does, of one counter, and asks its state without waiting for it (state V2, since Flink
 * 2.0). It takes --counters, --keys, --kind, --output, and what Arguments knows.
 */
public final class AsyncCount {
    private AsyncCount() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        String name = arguments.text("counters", "orders");
        Keys keys = new Keys(arguments.text("kind", "string"), arguments.number("keys", 10));
        String output = arguments.text("output", "");
        Lines lines = new Lines(output.isEmpty() ? "" : output + "/" + name, true);
        DataStream<Long> numbers = env.fromSource(
                        arguments.numbers(name), WatermarkStrategy.noWatermarks(), name + " source", Types.LONG)
                .setParallelism(1)
                .uid(name + "-source");
        numbers.keyBy(keys, keys.type())
                .enableAsyncState()
                .process(new Counting(), Types.STRING)
                .name(name + " count")
                .uid(name + "-count")
                .process(lines, Types.STRING)
                .name(name + " lines")
                .uid(name + "-lines");
        env.execute(arguments.text("name", name));
    }

    static final class Counting extends KeyedProcessFunction<Object, Long, String> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) throws Exception {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> out) {
            Object key = context.getCurrentKey();
            count.asyncValue().thenAccept(before -> {
                long now = before == null ? 1 : before + 1;
                count.asyncUpdate(now).thenAccept(done -> out.collect(key + "\t" + now + "\t" + number));
            });
        }
    }
}
