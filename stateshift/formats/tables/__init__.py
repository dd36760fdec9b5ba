"""Formats of tables that streaming jobs write to and read from: Delta, Iceberg. Only what tells
of a job's batches.
"""
