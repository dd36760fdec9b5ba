package jobs;

import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * A pattern that stays open: `first` is every other number of a key, `second` the one behind it, and `third` none before
 * a million. The numbers are the seconds of their time. It writes what the source gave, so that one knows when all are
 * there.
 *
 *   --keys 2, --output FOLDER, and what Arguments knows
 */
public final class Patterns {
    private Patterns() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        long keys = arguments.number("keys", 2);
        KeyedStream<Long, String> numbers = env.fromSource(
                        arguments.numbers("numbers"),
                        WatermarkStrategy.<Long>forMonotonousTimestamps()
                                .withTimestampAssigner((number, time) -> number * 1000),
                        "numbers",
                        Types.LONG)
                .setParallelism(1)
                .uid("numbers")
                .keyBy(number -> "key-" + number % keys, Types.STRING);
        numbers.map(number -> "number\t" + number)
                .returns(Types.STRING)
                .uid("told")
                .process(new Lines(arguments.text("output", "")))
                .returns(Types.STRING)
                .uid("lines");
        Pattern<Long, Long> pattern = Pattern.<Long>begin("first")
                .where(SimpleCondition.of(number -> number / keys % 2 == 0))
                .followedBy("second")
                .where(SimpleCondition.of(number -> number / keys % 2 == 1))
                .followedBy("third")
                .where(SimpleCondition.of(number -> number > 1_000_000));
        CEP.pattern(numbers, pattern)
                .process(new Matched(), Types.STRING)
                .name("patterns")
                .uid("patterns")
                .process(new Lines(""))
                .returns(Types.STRING)
                .uid("matches");
        env.execute("patterns");
    }

    static final class Matched extends PatternProcessFunction<Long, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public void processMatch(Map<String, List<Long>> match, Context context, Collector<String> output) {
            output.collect(match.toString());
        }
    }
}
