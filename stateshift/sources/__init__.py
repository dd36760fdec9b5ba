"""The sources of a job's input, asked for the records that they still have: a checkpoint does not
know whether its offsets are there.

    kafka   the span of each partition, by the `kafka-python` package (the extra `kafka`)
"""
