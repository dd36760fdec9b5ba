package bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job whose load is told while it runs, and which counts it by itself, apart from Flink's metrics.
 *
 *   Load FOLDER TOPOLOGY SLOW_US TELLS NAME
 *
 * FOLDER/control is `rate hot`: how many records arrive a second, and which share of them has one key. Records arrive
 * whether they are read or not, as in a topic; with TELLS the source says how many wait (`pendingRecords`). One operator
 * blocks for SLOW_US over each record. FOLDER/arrived-0 is `arrived given`, FOLDER/done-N of its subtask N
 * `records busy-nanoseconds`; each is written anew four times a second.
 *
 *   chain      source -> keyed, slow
 *   stages     source -> rebalanced, fast -> keyed, slow -> one subtask, fast
 *   fan        source -> keyed, slow; and source -> rebalanced, fast
 *   union      two sources -> keyed, slow
 *   broadcast  source -> keyed, slow, which also reads a broadcast of one record a second
 */
public final class Load {
    private Load() {}

    public static void main(String[] words) throws Exception {
        String folder = words[0];
        long slowUs = Long.parseLong(words[2]);
        boolean tells = Boolean.parseBoolean(words[3]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        String topology = words[1];
        DataStream<Long> records = source(env, folder, 0, topology.equals("union") ? 2 : 1, tells);
        if (topology.equals("union")) {
            records = records.union(source(env, folder, 1, 2, tells));
        }
        if (topology.equals("fan")) {
            records.rebalance().map(new Fast()).name("fast");
        }
        if (topology.equals("stages")) {
            records = records.rebalance().map(new Fast()).name("fast");
        }
        KeyedStream<Long, Long> keyed = records.keyBy(new Key(), Types.LONG);
        SingleOutputStreamOperator<Long> slow;
        if (topology.equals("broadcast")) {
            DataStream<Long> rules = source(env, "", 2, 1, false);
            MapStateDescriptor<Long, Long> state = new MapStateDescriptor<>("rules", Types.LONG, Types.LONG);
            slow = keyed.connect(rules.broadcast(state)).process(new SlowWithRules(folder, slowUs), Types.LONG);
        } else {
            slow = keyed.process(new Slow(folder, slowUs), Types.LONG);
        }
        slow.name("slow");
        if (topology.equals("stages")) {
            slow.rebalance().map(new Fast()).name("last").setParallelism(1);
        }
        env.execute(words[4]);
    }

    private static DataStream<Long> source(
            StreamExecutionEnvironment env, String folder, int number, int parts, boolean tells) {
        DataStream<Long> numbers = env.fromSource(
                        new Arriving(folder, number, parts, tells),
                        WatermarkStrategy.noWatermarks(),
                        "source " + number,
                        Types.LONG)
                .setParallelism(1);
        return numbers.map(new Dealt(folder)).returns(Types.LONG).name("keys").setParallelism(1);
    }

    /** What the control file says, read four times a second. */
    private static final class Control {
        private final Path file;
        private long readAt;
        double rate = 1;
        double hot;

        Control(String folder) {
            file = folder.isEmpty() ? null : Path.of(folder, "control");
        }

        void read() {
            long now = System.nanoTime();
            if (file == null || (readAt != 0 && now - readAt < 250_000_000L)) {
                return;
            }
            readAt = now;
            try {
                String[] words = Files.readString(file).trim().split(" ");
                rate = Double.parseDouble(words[0]);
                hot = Double.parseDouble(words[1]);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Writes what is counted, until it is closed. */
    private static final class Told extends Thread implements AutoCloseable {
        private final Path file;
        private final Supplier<String> text;

        Told(String folder, String name, Supplier<String> text) {
            super("told-" + name);
            this.file = Path.of(folder, name);
            this.text = text;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                while (true) {
                    Path whole = file.resolveSibling("." + file.getFileName());
                    Files.writeString(whole, text.get());
                    Files.move(whole, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
                    Thread.sleep(250);
                }
            } catch (InterruptedException | IOException ended) {
                interrupt();
            }
        }

        @Override
        public void close() {
            interrupt();
        }
    }

    /** Numbers at the rate of the control file. */
    private static final class Arriving extends NumberSequenceSource {
        private static final long serialVersionUID = 1L;
        private final String folder;
        private final int number;
        private final int parts;
        private final boolean tells;

        Arriving(String folder, int number, int parts, boolean tells) {
            super(0, Long.MAX_VALUE - 1);
            this.folder = folder;
            this.number = number;
            this.parts = parts;
            this.tells = tells;
        }

        @Override
        public Boundedness getBoundedness() {
            return Boundedness.CONTINUOUS_UNBOUNDED;
        }

        @Override
        public SourceReader<Long, NumberSequenceSplit> createReader(SourceReaderContext context) {
            Paced reader = new Paced(super.createReader(context));
            if (tells) {
                context.metricGroup().setPendingRecordsGauge(() -> Math.max(0, reader.arrived() - reader.given));
            }
            if (!folder.isEmpty()) {
                reader.told = new Told(folder, "arrived-" + number, () -> reader.arrived() + " " + reader.given);
            }
            return reader;
        }

        private final class Paced implements SourceReader<Long, NumberSequenceSplit> {
            private final SourceReader<Long, NumberSequenceSplit> inner;
            private final Control control = new Control(folder);
            private CompletableFuture<Void> waiting = CompletableFuture.completedFuture(null);
            private double arrived;
            private long until = System.nanoTime();
            private volatile long given;
            private Told told;

            Paced(SourceReader<Long, NumberSequenceSplit> inner) {
                this.inner = inner;
            }

            synchronized long arrived() {
                long now = System.nanoTime();
                arrived += (now - until) / 1e9 * control.rate / parts;
                until = now;
                control.read();
                return (long) arrived;
            }

            @Override
            public InputStatus pollNext(ReaderOutput<Long> output) throws Exception {
                if (!waiting.isDone()) {
                    return InputStatus.NOTHING_AVAILABLE;
                }
                if (given >= arrived()) {
                    waiting = CompletableFuture.runAsync(
                            () -> {}, CompletableFuture.delayedExecutor(5, TimeUnit.MILLISECONDS));
                    return InputStatus.NOTHING_AVAILABLE;
                }
                if (!inner.snapshotState(0).isEmpty()) {
                    given++;
                }
                return inner.pollNext(output);
            }

            @Override
            public CompletableFuture<Void> isAvailable() {
                return waiting.isDone() ? inner.isAvailable() : waiting;
            }

            @Override
            public void start() {
                inner.start();
                until = System.nanoTime();
            }

            @Override
            public List<NumberSequenceSplit> snapshotState(long checkpoint) {
                return inner.snapshotState(checkpoint);
            }

            @Override
            public void addSplits(List<NumberSequenceSplit> splits) {
                inner.addSplits(splits);
            }

            @Override
            public void notifyNoMoreSplits() {
                inner.notifyNoMoreSplits();
            }

            @Override
            public void handleSourceEvents(SourceEvent event) {
                inner.handleSourceEvents(event);
            }

            @Override
            public void close() throws Exception {
                if (told != null) {
                    told.close();
                }
                inner.close();
            }
        }
    }

    /** Gives each record its key: 0 to the hot share, and one of 400 to the others. */
    private static final class Dealt extends RichMapFunction<Long, Long> {
        private static final long serialVersionUID = 1L;
        private final String folder;
        private transient Control control;
        private double hot;
        private long others;

        Dealt(String folder) {
            this.folder = folder;
        }

        @Override
        public void open(OpenContext context) {
            control = new Control(folder);
        }

        @Override
        public Long map(Long number) {
            control.read();
            hot += control.hot;
            if (hot >= 1) {
                hot -= 1;
                return 0L;
            }
            return 1 + others++ % 400;
        }
    }

    private static final class Key implements org.apache.flink.api.java.functions.KeySelector<Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long getKey(Long record) {
            return record;
        }
    }

    private static final class Fast extends RichMapFunction<Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long map(Long record) {
            return record;
        }
    }

    /** Blocks over each record, and counts them and the time. */
    private static final class Work {
        private final long slowUs;
        private final Told told;
        private volatile long records;
        private volatile long busy;

        Work(String folder, int subtask, long slowUs) {
            this.slowUs = slowUs;
            told = new Told(folder, "done-" + subtask, () -> records + " " + busy);
        }

        void over() throws InterruptedException {
            long began = System.nanoTime();
            Thread.sleep(slowUs / 1000, (int) (slowUs % 1000) * 1000);
            records++;
            busy += System.nanoTime() - began;
        }
    }

    private static final class Slow extends KeyedProcessFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;
        private final String folder;
        private final long slowUs;
        private transient Work work;

        Slow(String folder, long slowUs) {
            this.folder = folder;
            this.slowUs = slowUs;
        }

        @Override
        public void open(OpenContext context) {
            work = new Work(folder, getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), slowUs);
        }

        @Override
        public void processElement(Long record, Context context, Collector<Long> output) throws Exception {
            work.over();
            output.collect(record);
        }

        @Override
        public void close() {
            if (work != null) {
                work.told.close();
            }
        }
    }

    private static final class SlowWithRules extends KeyedBroadcastProcessFunction<Long, Long, Long, Long> {
        private static final long serialVersionUID = 1L;
        private final String folder;
        private final long slowUs;
        private transient Work work;

        SlowWithRules(String folder, long slowUs) {
            this.folder = folder;
            this.slowUs = slowUs;
        }

        @Override
        public void open(OpenContext context) {
            work = new Work(folder, getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), slowUs);
        }

        @Override
        public void processElement(Long record, ReadOnlyContext context, Collector<Long> output) throws Exception {
            work.over();
            output.collect(record);
        }

        @Override
        public void processBroadcastElement(Long rule, Context context, Collector<Long> output) {}

        @Override
        public void close() {
            if (work != null) {
                work.told.close();
            }
        }
    }
}
