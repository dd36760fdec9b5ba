"""Which operators of a dataflow must change together, and how fast they can: the schedulers of
Fries (VLDB 2022).

    dataflow      operators and edges; graph: the same as numbers
    reading       our own JSON to a dataflow, all complaints at once; schema: what editors are told
                  of it
    flink_plan, spark_plan, joining
                  a running job's own plan to a dataflow, and several of them to one
    covering      the minimal covering sub-DAG and its components; pruning: who need not be in it
    schedulers    epoch barrier, naive, multi-version and Fries, as values of one type
    consistency   whether a schedule keeps its promise
    history       what happened, operation by operation, and whether it could have happened in some
                  order of
                  transactions: if not, the cycle
    wiring        a schedule on workers and channels
    model         every interleaving of a small one, or some of a large one
    recovering    changes, checkpoints and failures together, as a small runtime of real functions
    cuts          which jobs stop at one cut
    simulating    how long it takes: tuples, queues, costs and control messages
    expecting     whether each scheduler is consistent, and how long it would take under the load
                  that a dataflow
                  tells or an assumed one
    coordinator…  a migration while a job runs, as a model: checks, triggers, acknowledgements, and
    how tasks at
                  places follow it
    drawing       as Graphviz and Mermaid draw it; reasons: why each operator is in

Pure. Chance, where it is needed, is an argument.
"""
