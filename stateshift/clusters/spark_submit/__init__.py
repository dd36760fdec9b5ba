"""Spark jobs that this machine's `spark-submit` starts."""
