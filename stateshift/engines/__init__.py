"""The knowledge of Spark and of Flink: how each lays out state."""
