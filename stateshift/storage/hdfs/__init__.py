"""HDFS: one storage (`storage`) over two ways to call it, HTTP (`web`) and Hadoop's own RPC
(`native`).
"""
