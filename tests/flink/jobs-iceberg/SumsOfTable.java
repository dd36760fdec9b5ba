package jobs;

import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.RowKind;

/**
 * Counts and adds up the ids of a table of Iceberg by word, in SQL, and writes `word count sum` for each. It reads the
 * rows that are there first, each file as a split of its own, and looks for more twice a second.
 *
 *   --warehouse FOLDER   --table db.source (is made if it is not there)   --output FOLDER   --row-ms 0
 *
 * and what Arguments knows.
 */
public final class SumsOfTable {
    private SumsOfTable() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        String table = "lake." + arguments.text("table", "db.source");
        tables.executeSql("CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = '"
                + arguments.text("warehouse", "") + "')");
        tables.executeSql("CREATE DATABASE IF NOT EXISTS lake.db");
        tables.executeSql("CREATE TABLE IF NOT EXISTS " + table + " (id BIGINT, word STRING)");
        tables.createTemporarySystemFunction("slowly", Slowly.class);
        String rows = "SELECT word, slowly(id, " + arguments.number("row-ms", 0) + ") AS id FROM " + table
                + " /*+ OPTIONS('streaming' = 'true', 'monitor-interval' = '500ms', 'split-file-open-cost' ="
                + " '134217728', 'starting-strategy' = 'TABLE_SCAN_THEN_INCREMENTAL') */";
        tables.toChangelogStream(tables.sqlQuery(
                        "SELECT word, COUNT(*) AS c, SUM(id) AS s FROM (" + rows + ") AS r GROUP BY word"))
                .filter(row -> row.getKind() != RowKind.UPDATE_BEFORE)
                .map(row -> row.getField(0) + "\t" + row.getField(1) + "\t" + row.getField(2)).returns(Types.STRING)
                .process(new Lines(arguments.text("output", "")), Types.STRING);
        env.execute("sums of a table");
    }

    /** The number itself, after so many milliseconds. */
    public static final class Slowly extends ScalarFunction {
        private static final long serialVersionUID = 1L;

        public Long eval(Long number, Integer milliseconds) throws InterruptedException {
            Thread.sleep(milliseconds);
            return number;
        }
    }
}
