package jobs;

import org.apache.flink.api.common.functions.MapFunction;

/** Takes its time over every line, so that a savepoint finds a file half read. */
final class Slowly implements MapFunction<String, String> {
    private static final long serialVersionUID = 1;
    private final long milliseconds;

    Slowly(long milliseconds) {
        this.milliseconds = milliseconds;
    }

    @Override
    public String map(String line) throws Exception {
        Thread.sleep(milliseconds);
        return line;
    }
}
