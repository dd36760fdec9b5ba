"""Which operators of a dataflow must change together, how fast they can, and in which order jobs
and bins move.

A dataflow itself, and how it is read, is `specification.dataflow`.

Which operators change together (the schedulers of Fries, VLDB 2022):

    components        the minimal covering sub-DAG and its components; `pruning`: who need not join
    schedulers        epoch barrier, naive, multi-version and Fries, as values of one type
    consistency       whether a schedule keeps its promise
    reasons           why each operator is part of a change, and in which order they restart
    cuts              which jobs stop at one cut
    drawing           a schedule as Graphviz and Mermaid draw it

How long that takes:

    wiring            a schedule on workers and channels
    simulation        tuples, queues, costs and control messages, event by event
    delays            what to expect of each scheduler under the dataflow's load

In which order things move:

    move_steps        moves of bins or jobs, in the steps of a strategy
    edge_colouring    the least number of steps in which no worker gives or takes twice
    wave_strategy     the jobs of a spec in waves

Pure. Chance, where it is needed, is an argument. `models` checks all of it against every
interleaving of small dataflows.
"""
