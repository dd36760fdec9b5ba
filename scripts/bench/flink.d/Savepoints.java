package bench;

import java.util.Random;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.StateBootstrapTransformation;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * Savepoints made and changed by Flink's State Processor API, in this JVM. Keyed by string: a long `count`, bytes
 * `payload`; 128 key groups in four subtasks.
 *
 *   make TO UID ENTRIES BYTES      one operator with so many keys, so many bytes in the payload of each
 *   keep TO FROM                   the savepoint as it is, its operators kept: metadata is read, files are copied
 *   rewrite TO FROM UID [FROM UID] the operators read, and written into one savepoint: the only way to merge two
 */
public final class Savepoints {
    private static final int GROUPS = 128, PARALLELISM = 4;
    private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
    private static final TypeInformation<Tuple3<String, Long, byte[]>> ENTRY =
            Types.TUPLE(Types.STRING, Types.LONG, BYTES);

    private Savepoints() {}

    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", words[0].equals("make") ? "rocksdb" : "hashmap");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings);
        SavepointWriter writer;
        switch (words[0]) {
            case "make":
                long entries = Long.parseLong(words[3]);
                int size = Integer.parseInt(words[4]);
                DataStream<Tuple3<String, Long, byte[]>> made = env.fromSequence(0, entries - 1)
                        .map(number -> entry(number, size)).returns(ENTRY);
                writer = SavepointWriter.newSavepoint(env, GROUPS).withOperator(
                        OperatorIdentifier.forUid(words[2]), written(made));
                break;
            case "keep":
                writer = SavepointWriter.fromExistingSavepoint(env, words[2]);
                break;
            case "rewrite":
                writer = SavepointWriter.newSavepoint(env, GROUPS);
                for (int at = 2; at < words.length; at += 2) {
                    OperatorIdentifier operator = OperatorIdentifier.forUid(words[at + 1]);
                    writer.withOperator(operator, written(SavepointReader.read(env, words[at])
                            .readKeyedState(operator, new Reading(), Types.STRING, ENTRY)));
                }
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        writer.write(words[1]);
        env.execute();
    }

    private static StateBootstrapTransformation<Tuple3<String, Long, byte[]>> written(
            DataStream<Tuple3<String, Long, byte[]>> entries) {
        return OperatorTransformation.bootstrapWith(entries).keyBy(entry -> entry.f0, Types.STRING)
                .transform(new Writing());
    }

    private static Tuple3<String, Long, byte[]> entry(long number, int size) {
        byte[] payload = new byte[size];
        new Random(number).nextBytes(payload);
        return Tuple3.of("customer-" + number, number, payload);
    }

    private static ValueStateDescriptor<Long> count() {
        return new ValueStateDescriptor<>("count", Types.LONG);
    }

    private static ValueStateDescriptor<byte[]> payload() {
        return new ValueStateDescriptor<>("payload", BYTES);
    }

    static final class Writing extends KeyedStateBootstrapFunction<String, Tuple3<String, Long, byte[]>> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ValueState<byte[]> payload;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(count());
            payload = getRuntimeContext().getState(payload());
        }

        @Override
        public void processElement(Tuple3<String, Long, byte[]> entry, Context context) throws Exception {
            count.update(entry.f1);
            payload.update(entry.f2);
        }
    }

    static final class Reading extends KeyedStateReaderFunction<String, Tuple3<String, Long, byte[]>> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ValueState<byte[]> payload;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(count());
            payload = getRuntimeContext().getState(payload());
        }

        @Override
        public void readKey(String key, Context context, Collector<Tuple3<String, Long, byte[]>> out) throws Exception {
            out.collect(Tuple3.of(key, count.value(), payload.value()));
        }
    }
}
