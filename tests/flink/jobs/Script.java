package jobs;

import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Executes the statements of a file of SQL, `--file FILE`, each of which ends with `;` at the end of a line. */
public final class Script {
    private Script() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        arguments.environment();
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        String text = new String(Files.readAllBytes(Paths.get(arguments.text("file", ""))));
        for (String statement : text.split(";\n")) {
            String[] setting = statement.trim().split("'");
            if (statement.trim().startsWith("SET ")) {
                tables.getConfig().set(setting[1], setting[3]);
            } else if (!statement.trim().isEmpty()) {
                tables.executeSql(statement.trim());
            }
        }
    }
}
