"""Spark jobs on YARN: `spark-submit` starts them, the ResourceManager finds and ends them."""
