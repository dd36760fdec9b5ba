package jobs;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Counts and adds up the numbers in the lines of files, as SumsOfKafka does, and looks for more files twice a second.
 *
 *   --files FOLDER   --output FOLDER   --line-ms 0
 *
 * and what Arguments knows. The uids are files-source, files-slowly, orders-sums and orders-lines.
 */
public final class SumsOfFiles {
    private SumsOfFiles() {}

    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(words);
        StreamExecutionEnvironment env = arguments.environment();
        FileSource<String> files = FileSource.forRecordStreamFormat(
                        new TextLineInputFormat(), new Path(arguments.text("files", "")))
                .monitorContinuously(Duration.ofMillis(500))
                .build();
        SumsOfKafka.write(arguments, env.fromSource(files, WatermarkStrategy.noWatermarks(), "files", Types.STRING)
                .uid("files-source")
                .map(new Slowly(arguments.number("line-ms", 0))).returns(Types.STRING).uid("files-slowly"));
        env.execute("sums of files");
    }
}
