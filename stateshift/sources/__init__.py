"""Where a job's input comes from, asked what it still has: a checkpoint does not know whether its
offsets are there.

kafka        the span of each partition, by the `kafka-python` package (the extra `kafka`)
properties   a Java client's properties as that package takes them
"""
