package jobs;

import java.lang.reflect.Field;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * State whose types are others in the job that goes on: `--evolved true`. Each number writes `state key value` of all that
 * is held of its key, before it changes it, values as JSON.
 *
 *   --keys 4, --output FOLDER, and what Arguments knows
 *   --query SQL     of `numbers`, with a column n: its changes are written instead
 */
public final class Evolving {
    private Evolving() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        long keys = arguments.number("keys", 4);
        SingleOutputStreamOperator<Long> numbers = env
                .fromSource(arguments.numbers("numbers"), WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers");
        String query = arguments.text("query", "");
        if (!query.isEmpty()) {
            StreamTableEnvironment tables = StreamTableEnvironment.create(env);
            tables.createTemporaryView("numbers", tables.fromDataStream(numbers).as("n"));
            tables.toChangelogStream(tables.sqlQuery(query))
                    .map(row -> "query\t" + row.getKind().shortString() + "\t" + Json.of(row))
                    .returns(Types.STRING)
                    .uid("told")
                    .process(new Lines(arguments.text("output", "")), Types.STRING)
                    .uid("lines");
            env.execute("queried");
            return;
        }
        numbers.keyBy(number -> "key-" + number % keys, Types.STRING)
                .process(new Held(arguments.truth("evolved", false)))
                .returns(Types.STRING)
                .uid("held")
                .process(new Lines(arguments.text("output", "")), Types.STRING)
                .uid("lines");
        env.execute("evolving");
    }

    private static final String BEFORE = "{\"type\":\"record\",\"name\":\"Thing\",\"namespace\":\"jobs\",\"fields\":["
            + "{\"name\":\"id\",\"type\":\"int\"},{\"name\":\"tags\",\"type\":{\"type\":\"array\",\"items\":\"string\"}},"
            + "{\"name\":\"spare\",\"type\":[\"null\",\"string\"]}]}";
    private static final String AFTER = "{\"type\":\"record\",\"name\":\"Thing\",\"namespace\":\"jobs\",\"fields\":["
            + "{\"name\":\"number\",\"type\":\"long\"},{\"name\":\"grade\",\"type\":\"string\",\"default\":\"new\"},"
            + "{\"name\":\"tags\",\"type\":{\"type\":\"array\",\"items\":\"string\"}}]}";

    static final class Held extends KeyedProcessFunction<String, Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private final boolean evolved;
        private transient ValueState<Person> person;
        private transient ListState<Person> people;
        private transient MapState<String, Person> mortal;
        private transient ValueState<Row> row;
        private transient ValueState<RowData> sql;
        private transient ValueState<RowData> nested;
        private transient ValueState<GenericRecord> thing;
        private transient ValueState<Number> number;
        private transient ValueState<Long> spare;

        Held(boolean evolved) {
            this.evolved = evolved;
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public void initializeState(FunctionInitializationContext context) throws Exception {
            KeyedStateStore store = context.getKeyedStateStore();
            TypeInformation<Person> of = Types.POJO(Person.class);
            person = store.getState(new ValueStateDescriptor<>("person", of));
            people = store.getListState(new ListStateDescriptor<>("people", of));
            MapStateDescriptor<String, Person> lives = new MapStateDescriptor<>("mortal", Types.STRING, of);
            lives.enableTimeToLive(Versions.days(36_500));
            mortal = store.getMapState(lives);
            row = store.getState(new ValueStateDescriptor<>("row", evolved
                    ? Types.ROW(Types.LONG, Types.INT, Types.STRING)
                    : Types.ROW(Types.INT, Types.STRING, Types.DOUBLE)));
            LogicalType text = new VarCharType(VarCharType.MAX_LENGTH);
            sql = store.getState(new ValueStateDescriptor<>("sql", (TypeInformation<RowData>) (evolved
                    ? InternalTypeInfo.ofFields(new BigIntType(), new BigIntType(false), text, new DecimalType(30, 2), text)
                    : InternalTypeInfo.ofFields(new IntType(), text, new DoubleType(), new DecimalType(10, 2)))));
            nested = store.getState(new ValueStateDescriptor<>("nested", (TypeInformation<RowData>) InternalTypeInfo.ofFields(
                    evolved
                            ? rowOf("n", new BigIntType(), "extra", new VarCharType(VarCharType.MAX_LENGTH), "text", text,
                                    "in", rowOf("z", new IntType(), "more", new BigIntType()))
                            : rowOf("n", new IntType(), "t", text, "in", rowOf("z", new IntType(), "d", new DoubleType())),
                    new IntType())));
            thing = store.getState(new ValueStateDescriptor<>("thing",
                    new GenericRecordAvroTypeInfo(new Schema.Parser().parse(evolved ? AFTER : BEFORE))));
            number = store.getState(new ValueStateDescriptor<>("number", (TypeInformation) (evolved ? Types.LONG : Types.INT)));
            if (!evolved) {
                spare = store.getState(new ValueStateDescriptor<>("spare", Types.LONG));
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long n, Context context, Collector<String> output) throws Exception {
            String key = context.getCurrentKey();
            output.collect("number\t" + key + "\t" + Json.of(number.value()));
            output.collect("person\t" + key + "\t" + Json.of(person.value()));
            for (Person each : people.get()) {
                output.collect("people\t" + key + "\t" + Json.of(each));
            }
            output.collect("mortal\t" + key + "\t" + Json.of(mortal.get("one")));
            output.collect("row\t" + key + "\t" + Json.of(row.value()));
            output.collect("sql\t" + key + "\t" + shown(sql.value()));
            output.collect("nested\t" + key + "\t" + shownNested(nested.value()));
            output.collect("thing\t" + key + "\t" + thing.value());
            context.timerService().registerProcessingTimeTimer(4_000_000_000_000L);
            if (evolved) {
                Person next = person.value();
                next = next == null ? person(0) : next;
                next.count++;
                person.update(next);
                number.update((Long) (number.value() == null ? 0L : number.value().longValue()) + 1);
                return;
            }
            number.update((int) (long) n);
            spare.update(n);
            person.update(person(n));
            people.update(java.util.Arrays.asList(person(n), person(-n)));
            mortal.put("one", person(n));
            row.update(Row.of((int) (long) n, n % 3 == 0 ? null : "row " + n, n / 2.0));
            sql.update(GenericRowData.of((int) (long) n, n % 3 == 0 ? null : StringData.fromString("a longer text " + n), n / 4.0,
                    n % 2 == 0 ? null : DecimalData.fromUnscaledLong(-n, 10, 2)));
            nested.update(GenericRowData.of(
                    GenericRowData.of((int) (long) n, n % 3 == 0 ? null : StringData.fromString("a longer text " + n),
                            n % 5 == 0 ? null : GenericRowData.of((int) (long) -n, n / 4.0)),
                    (int) (long) n));
            GenericRecord record = new GenericData.Record(new Schema.Parser().parse(BEFORE));
            record.put("id", (int) (long) n);
            record.put("tags", java.util.Arrays.asList("a" + n, "b"));
            record.put("spare", n % 2 == 0 ? null : "spare");
            thing.update(record);
        }

        private static Person person(long n) throws Exception {
            Person person = new Person();
            person.count = (int) n;
            person.home = new Person.Place();
            person.home.town = "town " + n;
            person.home.zip = (int) n;
            person.kind = Person.Kind.OTHER;
            for (Field field : Person.class.getFields()) {
                if (field.getName().equals("name") || field.getName().equals("old")) {
                    field.set(person, field.getName() + " " + n);
                }
            }
            return person;
        }

        private static RowType rowOf(Object... named) {
            java.util.List<RowType.RowField> fields = new java.util.ArrayList<>();
            for (int at = 0; at < named.length; at += 2) {
                fields.add(new RowType.RowField((String) named[at], (LogicalType) named[at + 1]));
            }
            return new RowType(fields);
        }

        private String shownNested(RowData row) {
            if (row == null) {
                return "null";
            }
            if (!evolved) {
                return "{}";
            }
            RowData of = row.getRow(0, 4);
            RowData in = of.isNullAt(3) ? null : of.getRow(3, 2);
            return of.getLong(0) + "|" + of.getString(1) + "|" + (of.isNullAt(2) ? null : of.getString(2)) + "|"
                    + (in == null ? null : in.getInt(0) + "," + (in.isNullAt(1) ? null : in.getLong(1))) + "|" + row.getInt(1);
        }

        private String shown(RowData row) {
            if (row == null) {
                return "null";
            }
            if (!evolved) {
                return "{}";
            }
            return row.getLong(0) + "|" + row.getLong(1) + "|" + (row.isNullAt(2) ? null : row.getString(2)) + "|"
                    + (row.isNullAt(3) ? null : row.getDecimal(3, 30, 2)) + "|" + row.getString(4);
        }
    }
}
