"""The findings of a Spark job's move."""
