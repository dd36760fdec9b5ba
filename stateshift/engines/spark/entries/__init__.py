"""Entries of Spark's state: read, compared and written."""
