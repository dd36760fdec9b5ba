package jobs;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** What Flink 1.x wants a `Time` for and 2.x a `Duration`: the method is looked for by its name. */
final class Versions {
    private static final String[] TIMES = {
        "java.time.Duration",
        "org.apache.flink.api.common.time.Time",
        "org.apache.flink.streaming.api.windowing.time.Time"
    };

    private Versions() {}

    static StateTtlConfig days(long days) {
        return ((StateTtlConfig.Builder) called(StateTtlConfig.class, "newBuilder", days * 86_400_000L)).build();
    }

    static TumblingEventTimeWindows tumbling(long milliseconds) {
        return (TumblingEventTimeWindows) called(TumblingEventTimeWindows.class, "of", milliseconds);
    }

    static EventTimeSessionWindows sessions(long milliseconds) {
        return (EventTimeSessionWindows) called(EventTimeSessionWindows.class, "withGap", milliseconds);
    }

    private static Object called(Class<?> type, String name, long milliseconds) {
        for (String time : TIMES) {
            try {
                Class<?> argument = Class.forName(time);
                Method method = type.getMethod(name, argument);
                String maker = time.startsWith("java") ? "ofMillis" : "milliseconds";
                return method.invoke(null, argument.getMethod(maker, long.class).invoke(null, milliseconds));
            } catch (ClassNotFoundException | NoSuchMethodException next) {
                continue;
            } catch (IllegalAccessException | InvocationTargetException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException(type + " has no " + name + " that takes a time");
    }
}
