"""RocksDB's files, read and written without RocksDB: both engines keep state in them.

`sst` reads tables entry by entry, `sst_blocks` whole blocks at once; `sst_encoding` writes tables,
`manifest` the log that names them.
"""
