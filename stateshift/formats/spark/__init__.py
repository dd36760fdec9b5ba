"""What Spark writes: logs, state files, rows and schemas."""
