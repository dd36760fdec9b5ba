"""RocksDB's files, read and written without RocksDB: both engines keep state in them."""
