"""What the sink that a spec names has of a job's output, read from the sink's own log, without a
JVM.
"""
