package jobs;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.StateObject;

/**
 * What Flink itself reads in a `_metadata`, as JSON: no cluster, `java -cp 'lib/*:jobs.jar' jobs.Metadata DIRECTORY`.
 * With a second argument, a file, it says nothing and writes there what it read, as Flink stores a checkpoint.
 *
 *   {"checkpoint": 3, "version": 6, "operators": [
 *     {"id": HEX, "name": null, "uid": null, "parallelism": 2, "max_parallelism": 8, "coordinator": BYTES or null,
 *      "finished": false, "bytes": N, "subtasks": [
 *        {"index": 0, "operator": [{"class": NAME, "bytes": N, "states": {STATE: [MODE, OFFSET, ...]}}],
 *         "keyed": [{"class": NAME, "start": 0, "end": 3, "bytes": N, "offsets": [OFFSET, ...] where it has them}],
 *         "in_flight": BYTES}]}]}
 */
public final class Metadata {
    private Metadata() {}

    public static void main(String[] words) throws Exception {
        Path folder = Paths.get(words[0]);
        File file = folder.resolve("_metadata").toFile();
        CheckpointMetadata read;
        try (DataInputStream input =
                new DataInputStream(new BufferedInputStream(Files.newInputStream(file.toPath())))) {
            read = Checkpoints.loadCheckpointMetadata(input, Metadata.class.getClassLoader(), folder.toUri().toString());
        }
        if (words.length > 1) {
            try (OutputStream output = new BufferedOutputStream(Files.newOutputStream(Paths.get(words[1])))) {
                Checkpoints.storeCheckpointMetadata(read, output);
            }
            return;
        }
        int version;
        try (DataInputStream input = new DataInputStream(Files.newInputStream(file.toPath()))) {
            input.readInt();
            version = input.readInt();
        }
        List<String> operators = new ArrayList<>();
        for (OperatorState one : read.getOperatorStates()) {
            operators.add(operator(one));
        }
        System.out.println("{" + field("checkpoint", read.getCheckpointId()) + ", " + field("version", version) + ", "
                + field("operators", operators) + "}");
    }

    private static String operator(OperatorState one) {
        List<String> subtasks = new ArrayList<>();
        for (Map.Entry<Integer, OperatorSubtaskState> entry :
                new TreeMap<>(one.getSubtaskStates()).entrySet()) {
            subtasks.add(subtask(entry.getKey(), entry.getValue()));
        }
        Object coordinator = one.getCoordinatorState() == null ? null : one.getCoordinatorState().getStateSize();
        return "{" + String.join(", ",
                field("id", quoted(hex(one.getOperatorID().getBytes()))),
                field("name", quoted(told(one, "getOperatorName"))),
                field("uid", quoted(told(one, "getOperatorUid"))),
                field("parallelism", one.getParallelism()),
                field("max_parallelism", one.getMaxParallelism()),
                field("coordinator", coordinator),
                field("finished", one.isFullyFinished()),
                field("bytes", one.getStateSize()),
                field("subtasks", subtasks)) + "}";
    }

    private static String subtask(int index, OperatorSubtaskState state) {
        List<String> operator = new ArrayList<>();
        for (OperatorStateHandle handle : state.getManagedOperatorState()) {
            operator.add(operatorHandle(handle));
        }
        List<String> keyed = new ArrayList<>();
        for (KeyedStateHandle handle : state.getManagedKeyedState()) {
            keyed.add(keyedHandle(handle));
        }
        return "{" + String.join(", ", field("index", index), field("operator", operator), field("keyed", keyed),
                field("in_flight", bytes(state.getInputChannelState()) + bytes(state.getResultSubpartitionState())))
                + "}";
    }

    private static String operatorHandle(OperatorStateHandle handle) {
        List<String> states = new ArrayList<>();
        handle.getStateNameToPartitionOffsets().forEach((name, info) -> {
            List<String> parts = new ArrayList<>();
            parts.add(quoted(info.getDistributionMode().toString()));
            for (long offset : info.getOffsets()) {
                parts.add(Long.toString(offset));
            }
            states.add(quoted(name) + ": " + parts);
        });
        return "{" + String.join(", ", field("class", quoted(handle.getClass().getSimpleName())),
                field("bytes", handle.getStateSize()),
                "\"states\": {" + String.join(", ", states) + "}") + "}";
    }

    private static String keyedHandle(KeyedStateHandle handle) {
        List<String> fields = new ArrayList<>();
        fields.add(field("class", quoted(handle.getClass().getSimpleName())));
        fields.add(field("start", handle.getKeyGroupRange().getStartKeyGroup()));
        fields.add(field("end", handle.getKeyGroupRange().getEndKeyGroup()));
        fields.add(field("bytes", handle.getStateSize()));
        if (handle instanceof KeyGroupsStateHandle) {
            List<Long> offsets = new ArrayList<>();
            for (int group : handle.getKeyGroupRange()) {
                offsets.add(((KeyGroupsStateHandle) handle).getOffsetForKeyGroup(group));
            }
            fields.add(field("offsets", offsets));
        }
        return "{" + String.join(", ", fields) + "}";
    }

    private static long bytes(Collection<? extends StateObject> handles) {
        return handles.stream().mapToLong(StateObject::getStateSize).sum();
    }

    /** Since Flink 2.0. */
    private static String told(OperatorState one, String method) {
        try {
            return (String) ((Optional<?>) OperatorState.class.getMethod(method).invoke(one)).orElse(null);
        } catch (ReflectiveOperationException before) {
            return null;
        }
    }

    private static String field(String name, Object value) {
        return quoted(name) + ": " + value;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    private static String quoted(String text) {
        return text == null ? null : '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
