package jobs;

import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * SQL whose operators hold state of every form: GROUP BY, windows, a join, an interval join, the latest row of a key,
 * the first three, OVER; of columns of many types. Number n comes at n seconds.
 *
 *   --keys 5, --output FOLDER (`QUERY row` for each change), and what Arguments knows
 */
public final class Tables {
    private Tables() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        DataStream<Long> numbers = env
                .fromSource(arguments.numbers("numbers"), WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers");
        DataStream<Row> rows = numbers
                .map(Tables::row)
                .returns(Types.ROW_NAMED(
                        new String[] {"id", "ts", "tags", "counts"},
                        Types.LONG, Types.INSTANT, Types.OBJECT_ARRAY(Types.STRING), Types.MAP(Types.STRING, Types.INT)))
                .setParallelism(1)
                .uid("rows");
        tables.createTemporaryView("rows_of", rows, Schema.newBuilder()
                .column("id", DataTypes.BIGINT())
                .column("ts", DataTypes.TIMESTAMP_LTZ(3))
                .column("tags", DataTypes.ARRAY(DataTypes.STRING()))
                .column("counts", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))
                .watermark("ts", "ts - INTERVAL '1' SECOND")
                .build());
        tables.executeSql("CREATE TEMPORARY VIEW t AS SELECT id, ts, tags, counts, MOD(id, "
                + arguments.number("keys", 5) + ") AS k, 'name-' || CAST(MOD(id, 7) AS STRING) AS name,"
                + " CAST(id AS DECIMAL(10, 2)) / 4 AS amount, CAST(id AS DECIMAL(30, 5)) * -1000000000000 AS huge,"
                + " CAST(ts AS TIMESTAMP(9)) AS fine, CAST(ts AS DATE) AS d, CAST(ts AS TIME) AS tm,"
                + " CAST(MOD(id, 2) AS BOOLEAN) AS odd, CAST(id AS DOUBLE) / 8 AS dbl, CAST(id AS FLOAT) AS flt,"
                + " CAST(id AS SMALLINT) AS sml, CAST(MOD(id, 100) AS TINYINT) AS tny, ROW(id, 'r' || CAST(id AS STRING)) AS nested,"
                + " CAST('b' || CAST(id AS STRING) AS BYTES) AS bin FROM rows_of");
        Map<String, String> queries = new LinkedHashMap<>();
        queries.put("group", "SELECT k, COUNT(*), SUM(amount), MAX(name), MIN(fine), COUNT(DISTINCT name), AVG(dbl), MAX(id),"
                + " COLLECT(name) FROM t GROUP BY k");
        queries.put("window", "SELECT k, window_start, COUNT(*), SUM(amount), MAX(id) FROM TABLE(TUMBLE(TABLE t,"
                + " DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY k, window_start, window_end");
        queries.put("session", "SELECT k, SESSION_START(ts, INTERVAL '30' SECOND), COUNT(*), MAX(id) FROM t"
                + " GROUP BY k, SESSION(ts, INTERVAL '30' SECOND)");
        queries.put("join", "SELECT a.id, a.huge, a.fine, a.d, a.tm, a.odd, a.dbl, a.flt, a.sml, a.tny, a.nested, a.tags,"
                + " a.counts, a.bin, a.name, b.name FROM t AS a LEFT JOIN t AS b ON a.id = b.k WHERE a.id IS NOT NULL");
        queries.put("interval", "SELECT a.id, b.id FROM t AS a JOIN t AS b ON a.k = b.k AND a.ts BETWEEN"
                + " b.ts - INTERVAL '5' SECOND AND b.ts");
        queries.put("latest", "SELECT k, id, tags, nested FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC)"
                + " AS n FROM t) WHERE n = 1");
        queries.put("top", "SELECT k, id, amount, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY amount DESC)"
                + " AS n FROM t) WHERE n <= 3");
        queries.put("over", "SELECT k, id, SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
                + " FROM t");
        List<DataStream<String>> lines = new ArrayList<>();
        for (Map.Entry<String, String> query : queries.entrySet()) {
            String name = query.getKey();
            lines.add(tables.toChangelogStream(tables.sqlQuery(query.getValue()))
                    .map(row -> name + "\t" + row)
                    .returns(Types.STRING)
                    .uid("told-" + name));
        }
        DataStream<String> all = lines.get(0);
        for (DataStream<String> one : lines.subList(1, lines.size())) {
            all = all.union(one);
        }
        all.process(new Lines(arguments.text("output", "")), Types.STRING).uid("lines");
        env.execute(arguments.text("name", "tables"));
    }

    private static Row row(long number) {
        Map<String, Integer> counts = new LinkedHashMap<>();
        counts.put("n", (int) number);
        counts.put("none", null);
        String[] tags = number % 4 == 0 ? null : new String[] {"tag " + number, null, "é☃"};
        return Row.of(number, Instant.ofEpochSecond(number, 0), tags, counts);
    }
}
