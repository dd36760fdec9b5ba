package jobs;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Every kind of state there is, each in an operator whose uid is the kind: values, collections, timers, windows, lists,
 * sessions, ttl, rules (broadcast), shares (operator state). Number n comes at n seconds of event time. Each operator
 * writes `operator state key value` whenever it changes what it holds, so that the last line of each tells what is held;
 * sets and maps are told in order. Windows are told when they fire.
 *
 *   --keys 6, --output FOLDER, and what Arguments knows
 *   --only timers,ttl which of them; `windows` stands for lists and sessions as well
 *   --nulls false     whether a map has values that are null, with which hashmap writes no canonical savepoint
 */
public final class Kinds {
    private static final String ALL = "values,collections,timers,ttl,windows,rules,shares";
    private static final long HOUR = 3_600_000L;
    private static final long YEAR_2100 = 4_102_444_800_000L;

    private Kinds() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        WatermarkStrategy<Long> seconds = WatermarkStrategy.<Long>forMonotonousTimestamps()
                .withTimestampAssigner((number, before) -> number * 1000);
        SingleOutputStreamOperator<Long> numbers = env
                .fromSource(arguments.numbers("numbers"), seconds, "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers");
        List<String> only = Arrays.asList(arguments.text("only", ALL).split(","));
        List<DataStream<String>> lines = new ArrayList<>();
        for (String kind : only) {
            lines.add(of(kind, numbers, arguments));
        }
        DataStream<String> all = lines.get(0);
        for (DataStream<String> one : lines.subList(1, lines.size())) {
            all = all.union(one);
        }
        called(all.process(new Lines(arguments.text("output", "")), Types.STRING), "lines");
        env.execute(arguments.text("name", "kinds"));
    }

    private static DataStream<String> of(String kind, DataStream<Long> numbers, Arguments arguments) {
        long keys = arguments.number("keys", 6);
        switch (kind) {
            case "values":
                return keyed(numbers, kind, "string", keys, new Values());
            case "collections":
                return keyed(numbers, kind, "long", keys, new Collections(arguments.truth("nulls", false)));
            case "timers":
                return keyed(numbers, kind, "int", keys, new Timers());
            case "ttl":
                return keyed(numbers, kind, "string", keys, new Living());
            case "windows":
                return windows(by(numbers, "tuple", keys));
            case "rules":
                return rules(numbers, by(numbers, "long", keys));
            case "shares":
                return called(numbers.rebalance().process(new Shares(), Types.STRING), kind);
            default:
                throw new IllegalArgumentException("kinds are " + ALL + ", not " + kind);
        }
    }

    private static KeyedStream<Long, Object> by(DataStream<Long> numbers, String kind, long keys) {
        Keys selector = new Keys(kind, keys);
        return numbers.keyBy(selector, selector.type());
    }

    private static DataStream<String> keyed(
            DataStream<Long> numbers, String uid, String kind, long keys, KeyedProcessFunction<Object, Long, String> it) {
        return called(by(numbers, kind, keys).process(it, Types.STRING), uid);
    }

    private static DataStream<String> windows(KeyedStream<Long, Object> numbers) {
        DataStream<String> sums = called(
                numbers.window(Versions.tumbling(HOUR)).reduce(Long::sum, new Told<Long>("windows"), Types.STRING),
                "windows");
        DataStream<String> lists = called(
                numbers.window(Versions.tumbling(60_000)).process(new Told<Long>("lists"), Types.STRING), "lists");
        DataStream<String> sessions = called(
                numbers.window(Versions.sessions(60_000)).reduce(Long::sum, new Told<Long>("sessions"), Types.STRING),
                "sessions");
        return sums.union(lists, sessions);
    }

    private static DataStream<String> rules(DataStream<Long> numbers, KeyedStream<Long, Object> keyed) {
        SingleOutputStreamOperator<Long> tens = numbers.filter(number -> number % 10 == 0).name("tens").uid("tens");
        return called(keyed.connect(tens.broadcast(Ruled.RULES)).process(new Ruled(), Types.STRING), "rules");
    }

    private static SingleOutputStreamOperator<String> called(SingleOutputStreamOperator<String> operator, String uid) {
        return operator.name(uid).uid(uid);
    }

    private static String line(String operator, String state, Object key, Object value) {
        return operator + "\t" + state + "\t" + key + "\t" + value;
    }

    /** What an operator that looks after its state lazily need not say. */
    private abstract static class Keyed extends KeyedProcessFunction<Object, Long, String>
            implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            found(context.getKeyedStateStore());
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        abstract void found(KeyedStateStore store) throws Exception;
    }

    /** Flink finds fields and an empty constructor, and writes it as a POJO. */
    public static final class Point {
        public long x;
        public String label;
        public List<Integer> trail = new ArrayList<>();

        @Override
        public String toString() {
            return "x=" + x + " label=" + label + " trail=" + trail;
        }
    }

    static final class Values extends Keyed {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ValueState<String> text;
        private transient ValueState<Double> half;
        private transient ValueState<Tuple2<String, Long>> pair;
        private transient ValueState<Point> point;
        private transient ValueState<TreeSet<Long>> opaque;

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        void found(KeyedStateStore store) throws Exception {
            count = store.getState(new ValueStateDescriptor<>("count", Types.LONG));
            text = store.getState(new ValueStateDescriptor<>("text", Types.STRING));
            half = store.getState(new ValueStateDescriptor<>("half", Types.DOUBLE));
            pair = store.getState(new ValueStateDescriptor<>("pair", Types.TUPLE(Types.STRING, Types.LONG)));
            point = store.getState(new ValueStateDescriptor<>("point", Types.POJO(Point.class)));
            TypeInformation<TreeSet<Long>> kryo = (TypeInformation) new GenericTypeInfo<>(TreeSet.class);
            opaque = store.getState(new ValueStateDescriptor<>("opaque", kryo));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            Object key = context.getCurrentKey();
            count.update((count.value() == null ? 0 : count.value()) + 1);
            text.update("number " + number + (number % 2 == 0 ? "" : " ☃"));
            half.update(number / 2.0);
            pair.update(Tuple2.of("n" + number, -number));
            Point moved = point.value() == null ? new Point() : point.value();
            moved.x = number;
            moved.label = number % 3 == 0 ? null : "at " + number;
            moved.trail = new ArrayList<>(Arrays.asList((int) (number % 7), (int) (number % 11)));
            point.update(moved);
            TreeSet<Long> held = opaque.value() == null ? new TreeSet<>() : opaque.value();
            held.add(number % 4);
            opaque.update(held);
            output.collect(line("values", "count", key, count.value()));
            output.collect(line("values", "text", key, text.value()));
            output.collect(line("values", "half", key, half.value()));
            output.collect(line("values", "pair", key, pair.value()));
            output.collect(line("values", "point", key, moved));
            output.collect(line("values", "opaque", key, held));
        }
    }

    static final class Collections extends Keyed {
        private static final long serialVersionUID = 1L;
        private final boolean nulls;
        private transient ListState<Long> recent;
        private transient ListState<String> words;
        private transient MapState<String, Long> digits;
        private transient ReducingState<Long> sum;
        private transient AggregatingState<Long, Double> mean;

        Collections(boolean nulls) {
            this.nulls = nulls;
        }

        @Override
        void found(KeyedStateStore store) throws Exception {
            recent = store.getListState(new ListStateDescriptor<>("recent", Types.LONG));
            words = store.getListState(new ListStateDescriptor<>("words", Types.STRING));
            digits = store.getMapState(new MapStateDescriptor<>("digits", Types.STRING, Types.LONG));
            sum = store.getReducingState(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
            mean = store.getAggregatingState(
                    new AggregatingStateDescriptor<>("mean", new Mean(), Types.TUPLE(Types.LONG, Types.LONG)));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            Object key = context.getCurrentKey();
            List<Long> last = all(recent.get());
            last.add(number);
            recent.update(last.size() > 3 ? last.subList(last.size() - 3, last.size()) : last);
            if (number % 5 == 0) {
                words.add("word " + number);
            }
            digits.put("digit " + number % 10, nulls && number % 20 == 3 ? null : number);
            sum.add(number);
            mean.add(number);
            output.collect(line("collections", "recent", key, all(recent.get())));
            output.collect(line("collections", "words", key, all(words.get())));
            Map<String, Long> ordered = new TreeMap<>();
            for (Map.Entry<String, Long> one : digits.entries()) {
                ordered.put(one.getKey(), one.getValue());
            }
            output.collect(line("collections", "digits", key, ordered));
            output.collect(line("collections", "sum", key, sum.get()));
            output.collect(line("collections", "mean", key, mean.get()));
        }
    }

    private static <T> List<T> all(Iterable<T> found) {
        List<T> held = new ArrayList<>();
        if (found != null) {
            found.forEach(held::add);
        }
        return held;
    }

    /** Of sum and count. */
    static final class Mean implements AggregateFunction<Long, Tuple2<Long, Long>, Double> {
        private static final long serialVersionUID = 1L;

        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long number, Tuple2<Long, Long> held) {
            return Tuple2.of(held.f0 + number, held.f1 + 1);
        }

        @Override
        public Double getResult(Tuple2<Long, Long> held) {
            return (double) held.f0 / held.f1;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    /** One event timer that fires ten seconds later, one each hour that may not, and one of the clock's, in 2100. */
    static final class Timers extends Keyed {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> fired;

        @Override
        void found(KeyedStateStore store) throws Exception {
            fired = store.getState(new ValueStateDescriptor<>("fired", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            Object key = context.getCurrentKey();
            long soon = number * 1000 + 10_000;
            long later = (number * 1000 / HOUR + 1) * HOUR;
            long clock = YEAR_2100 + Math.abs((Integer) key);
            context.timerService().registerEventTimeTimer(soon);
            context.timerService().registerEventTimeTimer(later);
            context.timerService().registerProcessingTimeTimer(clock);
            output.collect(line("timers", "event " + soon, key, "set"));
            output.collect(line("timers", "event " + later, key, "set"));
            output.collect(line("timers", "processing " + clock, key, "set"));
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> output) throws Exception {
            Object key = context.getCurrentKey();
            fired.update((fired.value() == null ? 0 : fired.value()) + 1);
            output.collect(line("timers", "event " + time, key, "fired"));
            output.collect(line("timers", "fired", key, fired.value()));
        }
    }

    static final class Living extends Keyed {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> last;
        private transient ListState<Long> some;
        private transient MapState<Long, String> rests;

        @Override
        void found(KeyedStateStore store) throws Exception {
            StateTtlConfig long_ = Versions.days(36_500);
            ValueStateDescriptor<Long> value = new ValueStateDescriptor<>("last", Types.LONG);
            ListStateDescriptor<Long> list = new ListStateDescriptor<>("some", Types.LONG);
            MapStateDescriptor<Long, String> map = new MapStateDescriptor<>("rests", Types.LONG, Types.STRING);
            value.enableTimeToLive(long_);
            list.enableTimeToLive(long_);
            map.enableTimeToLive(long_);
            last = store.getState(value);
            some = store.getListState(list);
            rests = store.getMapState(map);
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            Object key = context.getCurrentKey();
            last.update(number);
            if (number % 7 == 0) {
                some.add(number);
            }
            rests.put(number % 4, "n" + number);
            output.collect(line("ttl", "last", key, last.value()));
            output.collect(line("ttl", "some", key, all(some.get())));
            Map<Long, String> ordered = new TreeMap<>();
            for (Map.Entry<Long, String> one : rests.entries()) {
                ordered.put(one.getKey(), one.getValue());
            }
            output.collect(line("ttl", "rests", key, ordered));
        }
    }

    /** A window that fires. */
    static final class Told<T> extends ProcessWindowFunction<T, String, Object, TimeWindow> {
        private static final long serialVersionUID = 1L;
        private final String operator;

        Told(String operator) {
            this.operator = operator;
        }

        @Override
        public void process(Object key, Context context, Iterable<T> held, Collector<String> output) {
            output.collect(line(operator, "window " + context.window().getStart(), key, all(held)));
        }
    }

    /** Multiples of ten are broadcast; what a key has counted does not depend on when they come. */
    static final class Ruled extends KeyedBroadcastProcessFunction<Object, Long, Long, String>
            implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        static final MapStateDescriptor<String, Long> RULES =
                new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);
        private transient ValueState<Long> count;

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            count = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, ReadOnlyContext context, Collector<String> output) throws Exception {
            count.update((count.value() == null ? 0 : count.value()) + 1);
            output.collect(line("rules", "count", context.getCurrentKey(), count.value()));
        }

        @Override
        public void processBroadcastElement(Long number, Context context, Collector<String> output) throws Exception {
            context.getBroadcastState(RULES).put("rule " + number / 10 % 5, number);
            output.collect(line("rules", "rules", "rule " + number / 10 % 5, number));
        }
    }

    /** Operator state: a list that is shared out, one that each gets whole, and a broadcast one, the same everywhere. */
    static final class Shares extends ProcessFunction<Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private transient ListState<Long> shared;
        private transient ListState<String> union;
        private transient BroadcastState<String, Long> same;

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            OperatorStateStore store = context.getOperatorStateStore();
            shared = store.getListState(new ListStateDescriptor<>("shared", Types.LONG));
            union = store.getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
            same = store.getBroadcastState(new MapStateDescriptor<>("same", Types.STRING, Types.LONG));
            same.put("constant", 42L);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            if (number % 6 == 0) {
                shared.add(number);
                output.collect(line("shares", "shared", number, "held"));
            }
            if (number % 15 == 0) {
                union.add("u" + number);
                output.collect(line("shares", "union", "u" + number, "held"));
            }
        }
    }
}
