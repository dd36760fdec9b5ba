import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapGroupsWithStateFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;

/**
 * The arbitrary stateful operators of Spark's typed API, which Python does not have: a group is a word, its state a
 * count, a sum that may be missing, the last time seen and the ids seen. make.py compiles this.
 */
public final class Grouped {
  public static final class Seen implements Serializable {
    private long count;
    private Double total;
    private java.sql.Timestamp last;
    private List<Long> ids = new ArrayList<>();

    public long getCount() { return count; }
    public void setCount(long value) { count = value; }
    public Double getTotal() { return total; }
    public void setTotal(Double value) { total = value; }
    public java.sql.Timestamp getLast() { return last; }
    public void setLast(java.sql.Timestamp value) { last = value; }
    public List<Long> getIds() { return ids; }
    public void setIds(List<Long> value) { ids = value; }
  }

  private Grouped() {}

  /** flatMapGroupsWithState with event times: some groups time out when the watermark passes them, some are
   * removed. */
  public static Dataset<String> flat(Dataset<Row> events) {
    FlatMapGroupsWithStateFunction<String, Row, Seen, String> function = (word, rows, state) -> {
      List<String> told = new ArrayList<>();
      if (state.hasTimedOut()) {
        told.add(word + " timed out at " + state.get().getCount());
        state.remove();
        return told.iterator();
      }
      Seen seen = added(rows, state);
      if (seen.getCount() == 8) {
        state.remove();
      } else {
        state.update(seen);
        if (seen.getCount() % 4 != 0) {
          state.setTimeoutTimestamp(seen.getLast().getTime() + 40_000);
        }
      }
      told.add(word + " " + seen.getCount());
      return told.iterator();
    };
    return byWord(events).flatMapGroupsWithState(
        function, OutputMode.Append(), Encoders.bean(Seen.class), Encoders.STRING(),
        GroupStateTimeout.EventTimeTimeout());
  }

  /** mapGroupsWithState, timing out by the clock: never within these few batches. */
  public static Dataset<String> mapped(Dataset<Row> events) {
    MapGroupsWithStateFunction<String, Row, Seen, String> function = (word, rows, state) -> {
      Seen seen = added(rows, state);
      state.update(seen);
      state.setTimeoutDuration("10 days");
      return word + " " + seen.getCount();
    };
    return byWord(events).mapGroupsWithState(
        function, Encoders.bean(Seen.class), Encoders.STRING(), GroupStateTimeout.ProcessingTimeTimeout());
  }

  private static KeyValueGroupedDataset<String, Row> byWord(Dataset<Row> events) {
    return events.groupByKey((MapFunction<Row, String>) row -> row.<String>getAs("word"), Encoders.STRING());
  }

  private static Seen added(Iterator<Row> rows, GroupState<Seen> state) {
    Seen seen = state.exists() ? state.get() : new Seen();
    List<Long> ids = new ArrayList<>(seen.getIds());
    while (rows.hasNext()) {
      Row row = rows.next();
      seen.setCount(seen.getCount() + 1);
      Double amount = row.<Double>getAs("amount");
      if (amount != null && ids.size() % 4 != 3) {
        seen.setTotal((seen.getTotal() == null ? 0.0 : seen.getTotal()) + amount);
      }
      seen.setLast(row.<java.sql.Timestamp>getAs("at"));
      ids.add(row.<Long>getAs("id"));
    }
    seen.setIds(ids);
    return seen;
  }
}
