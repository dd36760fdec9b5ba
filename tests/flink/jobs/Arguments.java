package jobs;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A program's arguments: pairs of `--name value`. What begins with `--flink.` is Flink's own configuration: the field
 * `flinkConfiguration` of the REST API is not there before Flink 1.17.
 */
final class Arguments {
    private final Map<String, String> told = new HashMap<>();

    Arguments(String[] words) {
        if (words.length % 2 != 0) {
            throw new IllegalArgumentException("a name without a value: " + words[words.length - 1]);
        }
        for (int at = 0; at < words.length; at += 2) {
            if (!words[at].startsWith("--")) {
                throw new IllegalArgumentException("not a name: " + words[at]);
            }
            told.put(words[at].substring(2), words[at + 1]);
        }
    }

    String text(String name, String otherwise) {
        return told.getOrDefault(name, otherwise);
    }

    long number(String name, long otherwise) {
        return told.containsKey(name) ? Long.parseLong(told.get(name)) : otherwise;
    }

    boolean truth(String name, boolean otherwise) {
        return told.containsKey(name) ? Boolean.parseBoolean(told.get(name)) : otherwise;
    }

    /** With `--parallelism`, `--max-parallelism` and `--checkpoint-ms`, where they are told. */
    StreamExecutionEnvironment environment() {
        Configuration configuration = new Configuration();
        told.forEach((name, value) -> {
            if (name.startsWith("flink.")) {
                configuration.setString(name.substring("flink.".length()), value);
            }
        });
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        if (told.containsKey("parallelism")) {
            env.setParallelism((int) number("parallelism", 1));
        }
        if (told.containsKey("max-parallelism")) {
            env.setMaxParallelism((int) number("max-parallelism", 128));
        }
        if (told.containsKey("checkpoint-ms")) {
            env.enableCheckpointing(number("checkpoint-ms", 1000));
        }
        return env;
    }

    /**
     * The source called `name`: `--first`, `--last`, `--per-second` (0: as fast as it goes), `--hold`, `--finishing`,
     * `--since-ms`.
     */
    Numbers numbers(String name) {
        long first = number("first", 0);
        long last = number("last", Long.MAX_VALUE - 1);
        boolean ends = text("finishing", "").equals(name);
        long hold = ends ? Long.MAX_VALUE : number("hold", last + 1);
        return new Numbers(first, last, number("per-second", 100), hold, ends, number("since-ms", 0));
    }
}
