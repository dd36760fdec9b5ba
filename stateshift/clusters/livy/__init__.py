"""Spark jobs behind Apache Livy."""
