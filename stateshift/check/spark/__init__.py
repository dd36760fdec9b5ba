"""Spark's part of a check: the capture of a file's queries, and the rules of Spark."""
