"""Executable models: what the rest of stateshift is held against. Imported by tests and benches
alone.

    history          what happened, operation by operation, and whether it is serialisable
    interleavings    every interleaving of a schedule on a small dataflow, or some of a large one
    recovery         changes, checkpoints and failures together, as a small runtime
    network          workers and channels of `live.protocol`, where every order can be tried
    promises         what a migration of bins promises, held against what was done
    task_instance    a task at a place, as the coordinator sees it
    coordinated_job  a job and the coordinator of its migration, as one value
    cost             latency, duration and memory of a strategy's steps
    sweeps           Megaphone's published experiments on the cost model

Pure. Chance, where it is needed, is an argument.
"""
