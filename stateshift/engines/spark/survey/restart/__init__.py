"""The files that a restart of Spark reads, and the batches from which it works."""
