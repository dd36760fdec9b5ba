"""Spark jobs on a standalone cluster, submitted to its master over REST."""
