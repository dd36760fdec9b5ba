"""A dataflow as a value, and how it is read and written.

    operators   operators and the edges between them, as values
    graph       the same as numbers: neighbours, orders, cycles
    parse       a text to a dataflow, all complaints at once: our own JSON (`document`, with the
                table of its `keys`), a Flink job's plan (`flink_plan`), a Spark query's
                (`spark_plan`)
    document    our own JSON, read and written
    checks      names that are known, one of each, no cycle

Which operators change together is computed from it in `stateshift.dataflow`. Pure.
"""
