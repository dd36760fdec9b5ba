"""In-memory twins of what stateshift talks to. Imported by tests and benches alone.

memory_storage   a disk in memory, with power cuts and killed processes
memory_cluster   a cluster whose jobs are values, with lost answers and refused submissions
memory_flink     the same for a cluster that takes savepoints
"""
