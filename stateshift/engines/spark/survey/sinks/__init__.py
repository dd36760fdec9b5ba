"""The batches of a job's output in the sink that a spec names, read from the sink's own log,
without a JVM.
"""
