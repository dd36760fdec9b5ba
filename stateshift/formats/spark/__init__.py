"""The files that Spark writes: logs, state, and their metadata."""
