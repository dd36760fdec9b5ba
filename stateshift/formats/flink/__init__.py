"""What Flink writes: metadata, keyed and operator state."""
