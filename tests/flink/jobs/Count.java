package jobs;

import java.util.Arrays;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts numbers by key and writes `key count number` for each: number n is its key's (n / keys + 1)th, in whatever way
 * the job has been stopped, moved and started on the way, and each number has one such line.
 *
 *   --counters orders,payments   one source, one count, one writer for each; their uids are orders-source, orders-count
 *                                and orders-lines, and so on. A job of several is what jobs of one each are merged to
 *   --sources north,south        of one counter with several sources: their uids are north-source, and so on. Each has a
 *                                share of the numbers, by its place in --regions north,south, and so keys of its own
 *                                (if there are as many regions as divide the keys). A job of one region alone is told
 *                                --region north
 *   --keys 10 --kind string      how many keys, of which type (see Keys)
 *   --output FOLDER              lines are written to FOLDER/orders/*.txt
 *   --slow-us 0                  how long a count takes: with a fast source, records pile up before it
 *   --counted long               the type of the counts in the state; int: it is not started, but planned and refused
 *   --late false                 true: the count is asked for with the first record
 *   --payload 0                  so many bytes more for each key
 *   --fails-at 0                 from this number on every record fails, as --fails-with says: record (it cannot be
 *                                divided) or outage (something else is not there)
 *   --ends true                  false: it fails where it is to end, behind its savepoint
 *   --uids true                  false leaves the uids to Flink
 *
 * and what Arguments knows.
 */
public final class Count {
    private Count() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        String counters = arguments.text("counters", "orders");
        for (String name : counters.split(",")) {
            add(env, arguments, name);
        }
        env.execute(arguments.text("name", counters));
    }

    private static void add(StreamExecutionEnvironment env, Arguments arguments, String name) {
        Keys keys = new Keys(arguments.text("kind", "string"), arguments.number("keys", 10));
        Counting counting = new Counting(arguments.text("counted", "long"), arguments.truth("late", false),
                arguments.number("slow-us", 0),
                (int) arguments.number("payload", 0),
                arguments.number("fails-at", 0), arguments.text("fails-with", "record").equals("outage"));
        String output = arguments.text("output", "");
        Lines lines = new Lines(output.isEmpty() ? "" : output + "/" + name, arguments.truth("ends", true));
        DataStream<Long> numbers = null;
        for (String source : arguments.text("sources", name).split(",")) {
            DataStream<Long> one = numbers(env, arguments, source);
            numbers = numbers == null ? one : numbers.union(one);
        }
        SingleOutputStreamOperator<String> counts = numbers.keyBy(keys, keys.type()).process(counting, Types.STRING);
        called(counts.name(name + " count"), name + "-count", arguments);
        called(counts.process(lines, Types.STRING).name(name + " lines"), name + "-lines", arguments);
    }

    private static DataStream<Long> numbers(StreamExecutionEnvironment env, Arguments arguments, String name) {
        SingleOutputStreamOperator<Long> numbers = env.fromSource(
                arguments.numbers(name), WatermarkStrategy.noWatermarks(), name + " source", Types.LONG);
        called(numbers.setParallelism(1), name + "-source", arguments);
        List<String> regions = Arrays.asList(arguments.text("regions", name).split(","));
        long place = regions.indexOf(arguments.text("region", name));
        long count = regions.size();
        if (count < 2 || place < 0) {
            return numbers;
        }
        SingleOutputStreamOperator<Long> share = numbers.map(number -> number * count + place).returns(Types.LONG);
        called(share.setParallelism(1), name + "-share", arguments);
        return share;
    }

    private static void called(SingleOutputStreamOperator<?> operator, String uid, Arguments arguments) {
        if (arguments.truth("uids", true)) {
            operator.uid(uid);
        }
    }

    static final class Counting extends KeyedProcessFunction<Object, Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private final String counted;
        private final boolean late;
        private final long slowUs;
        private final int payload;
        private final long failsAt;
        private final boolean outage;
        private transient ValueState<Long> count;
        private transient ValueState<byte[]> ballast;

        Counting(String counted, boolean late, long slowUs, int payload, long failsAt, boolean outage) {
            this.counted = counted;
            this.late = late;
            this.slowUs = slowUs;
            this.payload = payload;
            this.failsAt = failsAt;
            this.outage = outage;
        }

        @SuppressWarnings({"unchecked", "rawtypes"})
        private ValueStateDescriptor<Long> count() {
            TypeInformation<Long> type = counted.equals("long") ? Types.LONG : (TypeInformation) Types.INT;
            return new ValueStateDescriptor<>("count", type);
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            if (!late) {
                count = context.getKeyedStateStore().getState(count());
            }
            if (payload > 0) {
                ballast = context.getKeyedStateStore().getState(
                        new ValueStateDescriptor<>("payload", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            if (failsAt > 0 && number >= failsAt) {
                throw outage ? new java.io.IOException("no route to host") : new ArithmeticException("/ by zero");
            }
            if (count == null) {
                count = getRuntimeContext().getState(count());
            }
            long counted = (count.value() == null ? 0 : count.value()) + 1;
            count.update(counted);
            if (payload > 0 && counted == 1) {
                ballast.update(bytes(context.getCurrentKey().hashCode()));
            }
            if (slowUs > 0) {
                Thread.sleep(slowUs / 1000, (int) (slowUs % 1000) * 1000);
            }
            output.collect(context.getCurrentKey() + "\t" + counted + "\t" + number);
        }

        /** That do not compress, and are the same each time. */
        private byte[] bytes(long seed) {
            byte[] content = new byte[payload];
            new java.util.Random(seed).nextBytes(content);
            return content;
        }
    }
}
