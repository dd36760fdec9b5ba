"""HDFS: one storage (`storage`) over two ways to call it, `web` (HTTP) and `native` (RPC)."""
