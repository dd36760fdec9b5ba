"""The clusters on which jobs run.

    protocol       the one interface, and its promises
    kind           from a cluster of the spec to one that can be asked
    manual         a person            command        any shell commands
    tagged         the order of a start and a stop, which the clusters of Spark share
    spark_submit/  processes here, or pods of drivers
    livy, standalone/, flink/          each over HTTP (http); its API is read in `calls`
    detached       a process that outlives us, known by its tag
    stopping       the marker that asks a job to stop between two batches

The options of each kind are in `specification.options`.
"""
