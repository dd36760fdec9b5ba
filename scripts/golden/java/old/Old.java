import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.sum;
import static org.apache.spark.sql.functions.window;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.types.StructType;

/** The queries of `scripts/golden/old`, for Sparks that no Python of today can drive. Old FOLDER words|window */
public class Old {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    SparkSession spark = SparkSession.builder().master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.warehouse.dir", "file://" + folder + "/warehouse")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate();
    spark.sparkContext().setLogLevel("ERROR");
    StructType events = new StructType().add("id", "long").add("at", "timestamp")
        .add("word", "string").add("amount", "double");
    Dataset<Row> source = spark.readStream().schema(events)
        .option("maxFilesPerTrigger", 1).json(folder + "/in");
    StreamingQuery query = written(arguments[1], source, folder)
        .option("checkpointLocation", folder + "/checkpoint").start();
    try {
      query.processAllAvailable();
    } finally {
      query.stop();
    }
    spark.stop();
    System.exit(0);
  }

  private static DataStreamWriter<Row> written(String name, Dataset<Row> source, String folder) {
    if (name.equals("words")) {
      return source.groupBy("word").agg(count(lit(1)).as("n"), sum("amount").as("total"))
          .writeStream().outputMode("complete").format("memory").queryName("kept");
    }
    return source.withWatermark("at", "1 minute")
        .groupBy(window(col("at"), "10 seconds"), col("word"))
        .agg(count(lit(1)).as("n"), sum("amount").as("total"))
        .writeStream().outputMode("append").format("parquet").option("path", folder + "/out");
  }
}
