package jobs;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * State of every type that Flink has a serializer for: in `pojos` objects by their fields, keyed by objects; in `plain`
 * rows, tuples, numbers, times and arrays, keyed by rows; in `mixed` some that Kryo writes, between others. Each
 * operator writes `operator state key value` whenever it changes what it holds, keys and values as JSON.
 *
 *   --keys 6, --output FOLDER, and what Arguments knows
 */
public final class Typed {
    private Typed() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        long keys = arguments.number("keys", 6);
        SingleOutputStreamOperator<Long> numbers = env
                .fromSource(arguments.numbers("numbers"), WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers");
        KeySelector<Long, Id> byId = number -> new Id("id-" + number % keys, (int) (number % keys));
        KeySelector<Long, Row> byRow = number -> Row.of("row-" + number % 3, number % 3);
        KeySelector<Long, String> byText = number -> "key-" + number % keys;
        DataStream<String> lines = called(numbers.keyBy(byId, Types.POJO(Id.class)).process(new Pojos()), "pojos")
                .union(
                        called(numbers.keyBy(byRow, Types.ROW(Types.STRING, Types.LONG)).process(new Plain()), "plain"),
                        called(numbers.keyBy(byText, Types.STRING).process(new Mixed()), "mixed"));
        called(lines.process(new Lines(arguments.text("output", "")), Types.STRING), "lines");
        env.execute(arguments.text("name", "typed"));
    }

    private static SingleOutputStreamOperator<String> called(SingleOutputStreamOperator<String> operator, String uid) {
        return operator.returns(Types.STRING).name(uid).uid(uid);
    }

    public enum Colour {
        RED,
        GREEN,
        BLUE
    }

    /** A key. */
    public static final class Id {
        public String name;
        public int number;

        public Id() {}

        Id(String name, int number) {
            this.name = name;
            this.number = number;
        }

        @Override
        public int hashCode() {
            return 31 * name.hashCode() + number;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Id && ((Id) other).name.equals(name) && ((Id) other).number == number;
        }
    }

    public static class Shape {
        public String title;
    }

    /** No one told Flink of it: it stands in the state by its name. */
    public static final class Circle extends Shape {
        public double radius;
        public Colour colour;
    }

    /** A field of each kind. */
    public static final class Order {
        public long id;
        public int count;
        public short small;
        public byte tiny;
        public boolean open;
        public char letter;
        public float ratio;
        public double weight;
        public String note;
        public Integer maybe;
        public Colour colour;
        public BigDecimal price;
        public BigInteger big;
        public Instant at;
        public LocalDate day;
        public Id buyer;
        public Shape shape;
        public int[] marks;
        public String[] words;
        public Id[] others;
        public Map<String, Long> counts;
    }

    static Order order(long number) {
        Order order = new Order();
        order.id = -number * 4_294_967_311L;
        order.count = (int) number;
        order.small = (short) -number;
        order.tiny = (byte) number;
        order.open = number % 2 == 0;
        order.letter = (char) ('a' + number % 26);
        order.ratio = number / 2f;
        order.weight = number / 4.0;
        order.note = number % 3 == 0 ? null : "note ☃ " + number;
        order.maybe = number % 2 == 0 ? null : (int) number;
        order.colour = Colour.values()[(int) (number % 3)];
        order.price = BigDecimal.valueOf(number * 1000 + 5, 3);
        order.big = BigInteger.valueOf(number - 3).pow(17);
        order.at = Instant.ofEpochSecond(1_700_000_000L + number, 123_456_789);
        order.day = LocalDate.of(2024, 2, 1).plusDays(number);
        order.buyer = new Id("buyer " + number, (int) number);
        if (number % 2 == 0) {
            Circle circle = new Circle();
            circle.radius = number;
            circle.colour = Colour.BLUE;
            order.shape = circle;
        } else {
            order.shape = new Shape();
        }
        order.shape.title = "shape " + number;
        order.marks = new int[] {(int) number, -1};
        order.words = number % 5 == 0 ? null : new String[] {"one", null, "é"};
        order.others = new Id[] {null, new Id("other", (int) number)};
        order.counts = new LinkedHashMap<>();
        order.counts.put("n", number);
        return order;
    }

    /** What an operator that looks after its state lazily need not say; `count` is of all. */
    private abstract static class Keyed<K> extends KeyedProcessFunction<K, Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private final String operator;
        private transient Collector<String> output;
        private transient Object key;
        private transient ValueState<Long> count;

        Keyed(String operator) {
            this.operator = operator;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            found(context.getKeyedStateStore());
            count = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            this.output = output;
            key = context.getCurrentKey();
            seen(number);
            held("count", count, (count.value() == null ? 0 : count.value()) + 1);
        }

        <T> void held(String state, ValueState<T> in, T value) throws Exception {
            in.update(value);
            told(state, value);
        }

        void told(String state, Object value) throws Exception {
            output.collect(operator + "\t" + state + "\t" + Json.of(key) + "\t" + Json.of(value));
        }

        abstract void found(KeyedStateStore store) throws Exception;

        abstract void seen(long number) throws Exception;
    }

    static final class Pojos extends Keyed<Id> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Order> order;
        private transient ListState<Id> ids;
        private transient MapState<Id, Shape> shapes;
        private transient ValueState<Order> living;

        Pojos() {
            super("pojos");
        }

        @Override
        void found(KeyedStateStore store) throws Exception {
            order = store.getState(new ValueStateDescriptor<>("order", Types.POJO(Order.class)));
            ids = store.getListState(new ListStateDescriptor<>("ids", Types.POJO(Id.class)));
            shapes = store.getMapState(
                    new MapStateDescriptor<>("shapes", Types.POJO(Id.class), Types.POJO(Shape.class)));
            ValueStateDescriptor<Order> mortal = new ValueStateDescriptor<>("living", Types.POJO(Order.class));
            mortal.enableTimeToLive(Versions.days(36_500));
            living = store.getState(mortal);
        }

        @Override
        void seen(long number) throws Exception {
            held("order", order, order(number));
            held("living", living, order(number + 1));
            List<Id> last = new ArrayList<>(Arrays.asList(new Id("first", 1), new Id("last", (int) number)));
            ids.update(last);
            told("ids", last);
            shapes.put(new Id("shape", 0), order(number).shape);
            told("shapes " + Json.of(new Id("shape", 0)), order(number).shape);
        }
    }

    static final class Plain extends Keyed<Row> {
        private static final long serialVersionUID = 1L;
        private static final TypeInformation<Row> ROW =
                Types.ROW(Types.LONG, Types.STRING, Types.BIG_DEC, Types.ROW(Types.INT, Types.BOOLEAN));
        private transient ValueState<Row> row;
        private transient ValueState<Row> named;
        private transient ValueState<Tuple3<String, Row, Colour>> tuple;
        private transient ValueState<Either<String, Long>> either;
        private transient ValueState<BigDecimal> decimal;
        private transient ValueState<BigInteger> integer;
        private transient ValueState<Instant> instant;
        private transient ValueState<LocalDate> day;
        private transient ValueState<LocalTime> time;
        private transient ValueState<LocalDateTime> both;
        private transient ValueState<Date> date;
        private transient ValueState<Colour> colour;
        private transient ValueState<long[]> longs;
        private transient ValueState<double[]> doubles;
        private transient ValueState<String[]> strings;
        private transient ValueState<Row[]> rows;
        private transient ValueState<List<Row>> list;
        private transient ValueState<Map<String, Instant>> map;
        private transient ValueState<Character> letter;
        private transient ListState<Either<String, Long>> eithers;

        Plain() {
            super("plain");
        }

        @Override
        void found(KeyedStateStore store) throws Exception {
            row = of(store, "row", ROW);
            named = of(store, "named", Types.ROW_NAMED(new String[] {"name", "size"}, Types.STRING, Types.INT));
            tuple = of(store, "tuple", Types.TUPLE(Types.STRING, ROW, Types.ENUM(Colour.class)));
            either = of(store, "either", Types.EITHER(Types.STRING, Types.LONG));
            decimal = of(store, "decimal", Types.BIG_DEC);
            integer = of(store, "integer", Types.BIG_INT);
            instant = of(store, "instant", Types.INSTANT);
            day = of(store, "day", Types.LOCAL_DATE);
            time = of(store, "time", Types.LOCAL_TIME);
            both = of(store, "both", Types.LOCAL_DATE_TIME);
            date = of(store, "date", TypeInformation.of(Date.class));
            colour = of(store, "colour", Types.ENUM(Colour.class));
            longs = of(store, "longs", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO);
            doubles = of(store, "doubles", PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO);
            strings = of(store, "strings", TypeInformation.of(String[].class));
            rows = of(store, "rows", Types.OBJECT_ARRAY(ROW));
            list = of(store, "list", Types.LIST(ROW));
            map = of(store, "map", Types.MAP(Types.STRING, Types.INSTANT));
            letter = of(store, "letter", Types.CHAR);
            eithers = store.getListState(new ListStateDescriptor<>("eithers", Types.EITHER(Types.STRING, Types.LONG)));
        }

        @SuppressWarnings("unchecked")
        private static <T> ValueState<T> of(KeyedStateStore store, String name, TypeInformation<?> type) {
            return store.getState(new ValueStateDescriptor<>(name, (TypeInformation<T>) type));
        }

        private static Row row(long number) {
            String text = number % 2 == 0 ? null : "row " + number;
            return Row.of(number, text, BigDecimal.valueOf(number, 2), Row.of((int) -number, null));
        }

        @Override
        void seen(long number) throws Exception {
            Instant then = Instant.ofEpochSecond(number * 100_000_001L - 3_000_000_000L, number * 1_000_001);
            LocalDateTime local = LocalDateTime.of(1899, 12, 31, 23, 59, 1, 5_000_000).plusHours(number * 9999);
            held("row", row, row(number));
            held("named", named, Row.of("named " + number, (int) number));
            held("tuple", tuple, Tuple3.of("tuple", row(number + 1), Colour.GREEN));
            Either<String, Long> one = number % 2 == 0 ? Either.Left("left " + number) : Either.Right(number);
            held("either", either, one);
            held("decimal", decimal, number < 58 ? new BigDecimal("-12345678901234567890.0123").multiply(
                    BigDecimal.valueOf(number)) : number < 59 ? BigDecimal.ZERO : BigDecimal.ONE);
            held("integer", integer, number < 58 ? BigInteger.TEN.pow((int) number).negate() : number < 59
                    ? BigInteger.ONE : BigInteger.TEN);
            held("instant", instant, then);
            held("day", day, local.toLocalDate());
            held("time", time, local.toLocalTime());
            held("both", both, local);
            held("date", date, new Date(-number * 86_400_001L));
            held("colour", colour, Colour.BLUE);
            held("longs", longs, new long[] {number, Long.MIN_VALUE});
            held("doubles", doubles, new double[] {number / 8.0, -0.5});
            held("strings", strings, new String[] {"a", null, "𝄞" + number});
            held("rows", rows, new Row[] {row(number), null});
            held("list", list, new ArrayList<>(Arrays.asList(row(1), row(number))));
            Map<String, Instant> times = new LinkedHashMap<>();
            times.put("then", then);
            times.put("none", null);
            held("map", map, times);
            held("letter", letter, (char) ('☃' + number));
            List<Either<String, Long>> several = new ArrayList<>(Arrays.asList(one, Either.Right(7L)));
            eithers.update(several);
            told("eithers", several);
        }
    }

    static final class Mixed extends Keyed<String> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<TreeSet<Long>> tree;
        private transient ValueState<UUID> uuid;
        private transient ValueState<String> text;
        private transient ListState<Instant> instants;

        Mixed() {
            super("mixed");
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        void found(KeyedStateStore store) throws Exception {
            text = store.getState(new ValueStateDescriptor<>("text", Types.STRING));
            TypeInformation<TreeSet<Long>> kryo = (TypeInformation) new GenericTypeInfo<>(TreeSet.class);
            tree = store.getState(new ValueStateDescriptor<>("tree", kryo));
            instants = store.getListState(new ListStateDescriptor<>("instants", Types.INSTANT));
            uuid = store.getState(new ValueStateDescriptor<>("uuid", new GenericTypeInfo<>(UUID.class)));
        }

        @Override
        void seen(long number) throws Exception {
            held("text", text, "number " + number);
            held("tree", tree, new TreeSet<>(Arrays.asList(number, number * 1000)));
            held("uuid", uuid, new UUID(number, -number));
            List<Instant> several = new ArrayList<>(Arrays.asList(Instant.EPOCH, Instant.ofEpochMilli(number)));
            instants.update(several);
            told("instants", several);
        }
    }
}
