"""Verdicts, made of samples. Pure: the same inputs give the same verdict, whenever it is asked for.

settings          the numbers that decide, by the names of the Flink operator's autoscaler
samples           the measurements of a Flink job, and those of them that count
loads             rates over the samples: input, busy time, lag
flink_formulas    true processing rate, target rate, thresholds, the parallelism that follows
spark_batches     the same rates of a Spark job, read from its batches
verdicts          fits, scale, move or unknown, and the reasons
inputs            the inputs of a verdict, as one value
"""
