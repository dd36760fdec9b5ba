package jobs;

import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.UUID;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Writes each line as it comes to a file of its subtask's own, and passes nothing on. A job that is stopped with a
 * savepoint has then written what is in the savepoint, no more and no less. Without a folder it writes nothing. Where it
 * is not to end, it fails when it is closed, as a sink that cannot commit.
 */
final class Lines extends ProcessFunction<String, String> {
    private static final long serialVersionUID = 1L;
    private final String folder;
    private final boolean ends;
    private transient Writer writer;

    Lines(String folder) {
        this(folder, true);
    }

    Lines(String folder, boolean ends) {
        this.folder = folder;
        this.ends = ends;
    }

    @Override
    public void processElement(String line, Context context, Collector<String> output) throws Exception {
        if (folder.isEmpty()) {
            return;
        }
        if (writer == null) {
            Path file = Paths.get(folder, UUID.randomUUID() + ".txt");
            Files.createDirectories(file.getParent());
            writer = new OutputStreamWriter(Files.newOutputStream(file), StandardCharsets.UTF_8);
        }
        writer.write(line + "\n");
        writer.flush();
    }

    @Override
    public void close() throws Exception {
        if (writer != null) {
            writer.close();
        }
        if (!ends) {
            throw new IOException("not committed");
        }
    }
}
