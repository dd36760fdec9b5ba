package jobs;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.core.io.InputStatus;

/**
 * Flink's own sequence of numbers, whose position is in its checkpoints, at a pace, and held at a number without ending:
 * what a job holds then is known, and it can still be stopped with a savepoint. Neither pace nor hold is in the state,
 * so a job that goes on from a savepoint may have others.
 *
 * Numbers that arrive since a time, at that pace, wait until they are read, as in a topic: the source then tells how
 * many do (`pendingRecords`), and those that have come while the job was down are among them.
 */
final class Numbers extends NumberSequenceSource {
    private static final long serialVersionUID = 1L;
    private final double perSecond;
    private final long hold;
    private final boolean ends;
    private final long sinceMs;

    /** From `first` to `last`, both included; `hold` is the first number that is not given out. */
    Numbers(long first, long last, double perSecond, long hold, boolean ends, long sinceMs) {
        super(first, last);
        this.sinceMs = sinceMs;
        this.perSecond = perSecond;
        this.hold = hold;
        this.ends = ends;
    }

    @Override
    public Boundedness getBoundedness() {
        return ends ? Boundedness.BOUNDED : Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<Long, NumberSequenceSplit> createReader(SourceReaderContext context) {
        Paced reader = new Paced(super.createReader(context));
        if (sinceMs > 0) {
            context.metricGroup().setPendingRecordsGauge(() -> Math.max(0, reader.arrived() - reader.next));
        }
        return reader;
    }

    private final class Paced implements SourceReader<Long, NumberSequenceSplit> {
        private final SourceReader<Long, NumberSequenceSplit> inner;
        private CompletableFuture<Void> waiting = CompletableFuture.completedFuture(null);
        private long began = System.nanoTime();
        private long given;
        private volatile long next;

        Paced(SourceReader<Long, NumberSequenceSplit> inner) {
            this.inner = inner;
        }

        @Override
        public InputStatus pollNext(ReaderOutput<Long> output) throws Exception {
            if (!waiting.isDone()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            List<NumberSequenceSplit> left = inner.snapshotState(0);
            if (!left.isEmpty() && left.get(0).from() >= hold) {
                return hold();
            }
            next = left.isEmpty() ? next : left.get(0).from();
            if (!left.isEmpty() && perSecond > 0 && isEarly()) {
                waiting = CompletableFuture.runAsync(
                        () -> {}, CompletableFuture.delayedExecutor(5, TimeUnit.MILLISECONDS));
                return InputStatus.NOTHING_AVAILABLE;
            }
            given += left.isEmpty() ? 0 : 1;
            InputStatus status = inner.pollNext(output);
            return status == InputStatus.END_OF_INPUT && !ends ? hold() : status;
        }

        private boolean isEarly() {
            if (sinceMs > 0) {
                return next >= arrived();
            }
            return given >= (System.nanoTime() - began) / 1e9 * perSecond;
        }

        long arrived() {
            return (long) ((System.currentTimeMillis() - sinceMs) / 1e3 * perSecond);
        }

        private InputStatus hold() {
            waiting = new CompletableFuture<>();
            return InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return waiting.isDone() ? inner.isAvailable() : waiting;
        }

        @Override
        public void start() {
            inner.start();
            began = System.nanoTime();
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
            inner.close();
        }
    }
}
