"""What a restart of Spark reads, and from which batches it works."""
