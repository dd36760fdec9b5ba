import static org.apache.spark.sql.functions.*;

import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.Trigger;

/** Counts orders by windows: `Orders PLACE WORDS`, where the words change it. */
public class Orders {
  static final String COLUMNS =
      "id long, at timestamp, word string, user string, amount double, price double, n int";

  public static void main(String[] words) throws Exception {
    String place = words[0], change = words.length > 1 ? words[1] : "nothing";
    SparkSession spark = SparkSession.builder().appName("orders").getOrCreate();
    if (change.equals("other session")) spark = spark.newSession();
    if (change.equals("table")) spark.range(3).write().parquet(place + "/written");
    if (change.equals("fails")) throw new IllegalArgumentException("no such profile");
    if (change.equals("exits")) System.exit(3);
    spark.conf().set("spark.sql.shuffle.partitions", "2");
    Dataset<Row> late =
        spark.readStream().schema(COLUMNS).json(place + "/in").withWatermark("at", "5 seconds");
    late.createOrReplaceTempView("late");
    Dataset<Row> counted =
        spark.table("late").groupBy(window(col("at"), "2 seconds"), col("word"))
            .agg(
                count("*").alias("count"),
                (change.equals("max") ? max("amount") : sum("amount")).alias("total"));
    DataStreamWriter<Row> writer =
        counted.writeStream().queryName("orders").trigger(Trigger.AvailableNow());
    writer = writer.option("checkpointLocation", place + "/checkpoint");
    if (change.equals("files")) {
      writer = writer.format("parquet").option("path", place + "/sink");
    } else {
      VoidFunction2<Dataset<Row>, Long> show = (rows, batch) -> System.out.println(rows.count());
      writer = writer.outputMode("update").foreachBatch(show);
    }
    writer.start().awaitTermination();
  }
}
