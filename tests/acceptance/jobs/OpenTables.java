import java.util.zip.CRC32;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/** Opens a database, reads all of it, writes to it, compacts it and reads it again. Prints its version, and each time how
    many entries there are and the CRC32 of their keys and values: java -cp rocksdbjni.jar OpenTables.java DIRECTORY. */
public class OpenTables {
  public static void main(String[] arguments) throws Exception {
    RocksDB.loadLibrary();
    try (Options options = new Options().setParanoidChecks(true); RocksDB db = RocksDB.open(options, arguments[0])) {
      System.out.println(RocksDB.rocksdbVersion() + " " + read(db));
      db.put(new byte[] {0}, new byte[] {1});
      db.flush(new FlushOptions());
      db.compactRange();
      db.delete(new byte[] {0});
    }
    try (Options options = new Options(); RocksDB db = RocksDB.open(options, arguments[0])) {
      db.compactRange();
      System.out.println(read(db));
    }
  }

  private static String read(RocksDB db) throws Exception {
    CRC32 sum = new CRC32();
    long count = 0;
    try (ReadOptions all = new ReadOptions().setVerifyChecksums(true); RocksIterator entries = db.newIterator(all)) {
      for (entries.seekToFirst(); entries.isValid(); entries.next()) {
        byte[] found = db.get(all, entries.key());
        if (!java.util.Arrays.equals(found, entries.value())) throw new Exception("get and iterator differ");
        sum.update(entries.key());
        sum.update(found);
        count++;
      }
      entries.status();
    }
    return count + " " + sum.getValue();
  }
}
