"""Measurements: each module reads one system, and decides nothing.

flink    a job's counters, over the JobManager's REST API
spark    a query's batches, from its checkpoint; what waits, from the brokers
"""
