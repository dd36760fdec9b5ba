package jobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * Aggregates and a join in SQL, whose operators have uids of the planner's making; `--plan FILE` executes a query of
 * SQL's own tables through a compiled plan instead, which is where SQL has uids that stay.
 *
 *   --keys 5, --output FOLDER (`sql row` for each change), and what Arguments knows
 */
public final class Sql {
    private Sql() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        if (arguments.truth("plan", false)) {
            planned(tables, arguments);
        } else {
            queried(env, tables, arguments);
        }
    }

    private static void queried(StreamExecutionEnvironment env, StreamTableEnvironment tables, Arguments arguments)
            throws Exception {
        DataStream<Long> numbers = env
                .fromSource(arguments.numbers("numbers"), WatermarkStrategy.noWatermarks(), "numbers", Types.LONG)
                .setParallelism(1)
                .uid("numbers");
        tables.createTemporaryView("numbers", tables.fromDataStream(numbers).as("n"));
        long keys = arguments.number("keys", 5);
        tables.executeSql("CREATE TEMPORARY VIEW counts AS SELECT k, COUNT(*) AS c, SUM(n) AS s,"
                + " COUNT(DISTINCT t) AS d, MAX(t) AS m FROM (SELECT n, MOD(n, " + keys + ") AS k,"
                + " CAST(MOD(n, 3) AS STRING) AS t FROM numbers) AS x GROUP BY k");
        DataStream<Row> changes = tables.toChangelogStream(tables.sqlQuery(
                "SELECT counts.k, c, s, d, m, n FROM counts JOIN numbers ON counts.k = numbers.n"));
        changes.map(row -> "sql\t" + row)
                .returns(Types.STRING)
                .uid("told")
                .process(new Lines(arguments.text("output", "")), Types.STRING)
                .uid("lines");
        env.execute(arguments.text("name", "sql"));
    }

    private static void planned(StreamTableEnvironment tables, Arguments arguments) {
        tables.executeSql("CREATE TABLE orders (id BIGINT, amount INT) WITH ('connector' = 'datagen',"
                + " 'rows-per-second' = '" + arguments.number("per-second", 100) + "',"
                + " 'fields.id.kind' = 'random', 'fields.id.min' = '0', 'fields.id.max' = '9')");
        tables.executeSql("CREATE TABLE totals (id BIGINT, c BIGINT, s INT) WITH ('connector' = 'blackhole')");
        tables.compilePlanSql("INSERT INTO totals SELECT id, COUNT(*), SUM(amount) FROM orders GROUP BY id").execute();
    }
}
