"""Flink jobs over the REST API of a session cluster, and of the SQL gateway before it."""
