"""Verdicts, made of samples. Pure: the same inputs give the same verdict, whenever it is asked for.

settings          what decides, by the names of the Flink operator's autoscaler
samples           what was measured of a Flink job, and which of it counts
loads             rates over the samples: what came in, how busy it was, how much waits
flink_formulas    true processing rate, target rate, thresholds, the parallelism that follows
spark_batches     the same rates of a Spark job, read from its batches
verdicts          fits, scale, move or unknown, and why
explaining        each formula with its numbers
inputs            all that a verdict is made from, as one value
"""
