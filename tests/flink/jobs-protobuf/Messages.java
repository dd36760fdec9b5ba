package jobs;

import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.twitter.chill.protobuf.ProtobufSerializer;
import java.util.Arrays;
import java.util.List;
import jobs.wire.Orders.Order;
import jobs.wire.parts.Part;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * State of messages of protobuf, which Kryo writes by chill's serializer, as Flink's documentation has it: a value, a
 * list, a map, and one between the fields of an object. It writes `state key value`, and where `maybe` came with the
 * savepoint, what it read of it.
 *
 *   --keys 6, --output FOLDER, and what Arguments knows
 */
public final class Messages {
    private Messages() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        SerializerConfigImpl types = (SerializerConfigImpl) env.getConfig().getSerializerConfig();
        types.registerTypeWithKryoSerializer(Order.class, ProtobufSerializer.class);
        types.registerTypeWithKryoSerializer(Part.class, ProtobufSerializer.class);
        long keys = arguments.number("keys", 6);
        env.fromSource(arguments.numbers("numbers"), WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers")
                .keyBy(number -> "key-" + number % keys, Types.STRING)
                .process(new Holding())
                .name("messages")
                .uid("messages")
                .process(new Lines(arguments.text("output", "")))
                .returns(Types.STRING)
                .name("lines")
                .uid("lines");
        env.execute(arguments.text("name", "messages"));
    }

    /** An object with a message between its fields. */
    public static final class Parcel {
        public String label;
        public Order order;
        public long weight;
    }

    static Part part(long number) {
        Part.Builder part = Part.newBuilder().setName("part ☃ " + number).addSizes((int) number).addSizes(-1);
        part.addPlaceBuilder().setShelf((int) number);
        part.addPlaceBuilder().setShelf(-2);
        return number % 2 == 0 ? part.build() : part.setWithin(Part.newBuilder().setName("inner").setStock(0)).build();
    }

    static Order order(long number) {
        Order.Line line = Order.Line.newBuilder().setArticle("article " + number).setCount((int) -number).build();
        Order.Builder order = Order.newBuilder()
                .setId(number * 4_294_967_311L)
                .setNote(number % 3 == 0 ? "" : "note é " + number)
                .setColourValue((int) (number % 4))
                .addAllMarks(Arrays.asList(number, -number, Long.MIN_VALUE))
                .addLines(line)
                .addLines(Order.Line.getDefaultInstance())
                .putByName("a", line)
                .putByName("", Order.Line.getDefaultInstance())
                .setRaw(ByteString.copyFrom(new byte[] {0, (byte) number, -1}))
                .setWeight(number / 8.0)
                .setRatio(-number / 2f)
                .setOpen(number % 2 == 0)
                .setBig(-number)
                .setSmall((int) -number)
                .setPart(part(number));
        if (number % 2 == 0) {
            order.setMaybe(0).setCard("card " + number);
        } else {
            order.setCash(number);
        }
        return order.build();
    }

    static final class Holding extends KeyedProcessFunction<String, Long, String> implements CheckpointedFunction {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Order> order;
        private transient ListState<Part> parts;
        private transient MapState<String, Order> orders;
        private transient ValueState<Parcel> parcel;
        private transient ValueState<Long> count;

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            TypeInformation<Order> type = TypeInformation.of(Order.class);
            order = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("order", type));
            parts = context.getKeyedStateStore()
                    .getListState(new ListStateDescriptor<>("parts", TypeInformation.of(Part.class)));
            orders = context.getKeyedStateStore()
                    .getMapState(new MapStateDescriptor<>("orders", Types.STRING, type));
            parcel = context.getKeyedStateStore()
                    .getState(new ValueStateDescriptor<>("parcel", Types.POJO(Parcel.class)));
            count = context.getKeyedStateStore().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(Long number, Context context, Collector<String> output) throws Exception {
            String key = context.getCurrentKey();
            if (order.value() != null) {
                output.collect("before\t" + key + "\t" + text(order.value()));
            }
            order.update(order(number));
            output.collect("order\t" + key + "\t" + text(order(number)));
            List<Part> several = Arrays.asList(part(number), part(number + 1));
            parts.update(several);
            output.collect("parts\t" + key + "\t[" + text(several.get(0)) + "," + text(several.get(1)) + "]");
            orders.put("one", order(number + 1));
            output.collect("orders one\t" + key + "\t" + text(order(number + 1)));
            Parcel held = new Parcel();
            held.label = "parcel " + number;
            held.order = number % 5 == 0 ? null : order(number + 2);
            held.weight = number;
            parcel.update(held);
            output.collect("parcel\t" + key + "\t{\"label\":\"" + held.label + "\",\"order\":"
                    + (held.order == null ? "null" : text(held.order)) + ",\"weight\":" + number + "}");
            long counted = count.value() == null ? 1 : count.value() + 1;
            count.update(counted);
            output.collect("count\t" + key + "\t" + counted);
        }

        private static String text(Message message) throws Exception {
            return JsonFormat.printer()
                    .includingDefaultValueFields()
                    .preservingProtoFieldNames()
                    .omittingInsignificantWhitespace()
                    .print(message);
        }
    }
}
