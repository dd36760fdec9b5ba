"""State that moves between running jobs, a bin of keys at a time.

    operators   what a user writes: a function over a key's state, and how it is declared
    times       logical time, and what a source promises of it
    batches     a batch's rows, in the order of time, bin by bin
    fetching    pieces of files, read together
    stores      a bin's state in memory: objects or columns, and as bytes
    stages      what happens to a bin in a batch: applied, given, taken, held
    commits     a batch's commit as a value, and the fold of commits
    files       the group's files of bins: commits, data, workers, proposals of moves
    running     a worker: bins here, a batch at a time, one commit each
    reading_ahead   bins that will come, read before they do
    cleaning    which files a worker can remove, and when it is worth looking
    compacting  which bins to write anew, so that dead files can go
    in_driver   the first home of bins: the driver's own process
    in_executors, bin_task   the second one: the processes of Spark's tasks
    worker      what a job hands to foreachBatch
    outputs     where a worker's rows go, once for each commit

    watch         a group from outside: where the bins are, who is how far, how fast
    move_request  which bins shall go where, in which steps; checked
    step_table    one proposal, in the protocol's own coordinator
    migration     all steps, carried one after the other
    steering      small files: paused, throttled, stopped
    controlling   what a program calls to move bins

Which worker has which bin at which time is `protocol.configuration`; records are folded by
`protocol.applying`.
"""
