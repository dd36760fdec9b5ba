"""Executable models of the papers' protocols, and the tests that hold the program against them.

    history          what happened, operation by operation, and whether it is serialisable
    interleavings    every interleaving of a schedule on a small dataflow, or some of a large one
    recovery         changes, checkpoints and failures together, as a small runtime
    bin_messages     what a worker of bins receives and sends
    bin_worker       one worker of bins: F routes and moves, S installs and applies
    network          workers and channels of `live.protocol`, where every order can be tried
    promises         what a migration of bins promises, held against what was done
    tasks            operators, tasks and exchange patterns; a migration that is asked for; the words
    coordinator      checks, triggers, counts acknowledgements, completes or aborts (BTW 2018)
    task_instance    a task at a place, as the coordinator sees it
    checkpoint_wait  how long a migration waits for its checkpoint
    coordinated_job  a job and the coordinator of its migration, as one value
    plan_writer      plan files as the published writer has them
    cost             latency, duration and memory of a strategy's steps
    sweeps           Megaphone's published experiments on the cost model

Pure. Chance, where it is needed, is an argument.
"""
