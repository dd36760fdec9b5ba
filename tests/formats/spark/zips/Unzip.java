import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;

/**
 * What java.util.zip.ZipInputStream makes of a zip in which a single bit is flipped, for every bit of it, in their order:
 * `=` the same files, `~` others, `!` an exception. Files are read as Spark reads them (Utils.unzipFilesFromFile).
 */
public class Unzip {
    public static void main(String[] arguments) throws IOException {
        for (String name : arguments) {
            byte[] content = Files.readAllBytes(Path.of(name));
            String whole = unzipped(content);
            StringBuilder verdicts = new StringBuilder();
            for (int bit = 0; bit < 8 * content.length; bit++) {
                content[bit / 8] ^= 1 << bit % 8;
                String found = unzipped(content);
                verdicts.append(found == null ? '!' : found.equals(whole) ? '=' : '~');
                content[bit / 8] ^= 1 << bit % 8;
            }
            System.out.println(verdicts);
        }
    }

    /** Names, sizes and checksums of the files; null where Java refuses the zip. */
    private static String unzipped(byte[] content) {
        StringBuilder found = new StringBuilder();
        byte[] room = new byte[8192];
        try (ZipInputStream in = new ZipInputStream(new ByteArrayInputStream(content))) {
            for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
                CRC32 sum = new CRC32();
                long size = 0;
                for (int count = in.read(room); count >= 0; count = in.read(room)) {
                    sum.update(room, 0, count);
                    size += count;
                }
                found.append(entry.getName()).append(' ').append(size).append(' ').append(sum.getValue()).append('\n');
            }
        } catch (IOException | IllegalArgumentException refused) {
            return null;
        }
        return found.toString();
    }
}
