"""The operators of a dataflow that must change together, the time that it takes, and the order in
which jobs and bins move.

A dataflow itself, and its reader, are in `specification.dataflow`.

Operators that change together (the schedulers of Fries, VLDB 2022):

    components        the minimal covering sub-DAG, its components, the operators that need not join
    schedulers        epoch barrier, naive, multi-version and Fries, as values of one type; whether
                      a schedule is consistent
    reasons           the reasons of each operator for its part in a change; the order of restarts
    cuts              the jobs that stop at one cut, and the waves of a spec's jobs

The time that it takes:

    simulation        a schedule on workers and channels: tuples, queues, costs and control
                      messages, event by event
    delays            a forecast of each scheduler under the dataflow's load

Moves in order:

    move_steps        moves of bins or jobs, in the steps of a strategy

Pure. Chance, where it is needed, is an argument. `models` checks all of it against every
interleaving of small dataflows.
"""
