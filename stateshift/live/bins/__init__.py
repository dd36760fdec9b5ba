"""State that moves between running jobs, a bin of keys at a time.

    operators       an operator as a user declares it: a function over a key's state
    times, hashing  logical time, and the promise of a source; the hash of a key
    batches         a batch's rows, in the order of time, bin by bin
    stores          a bin's state in memory: objects or columns, and as bytes
    stages          one bin in a batch: applied, given, taken, held
    bin_run         a bin through its stages; bins in memory
    commits         a batch's commit as a value, and the fold of commits
    files, parts, compactions   the group's files of bins: commits, data, moves, workers
    worker_state    a worker between two commits, as a value, and the plan of its next batch
    bin_worker      the same at work: it asks for news of others, runs, commits
    upkeep          files to remove, bins to write whole, bins to read ahead
    redistribution  bins by another number of them
    homes           the places of bins: the driver's own process, or those of Spark's tasks
    worker          the part of a job, for foreachBatch; outputs

    watch           a group from outside: the place and load of each bin, the progress of workers
    move_request    the bins to move, and their steps; another number of them; checked
    step_table      one proposal, in the protocol's own coordinator
    migration       all steps, carried one after the other
    compact_moves   the files of earlier moves, folded into one
    steering        small files: paused, throttled, stopped
    controller      the calls of a program that moves bins
    adoption, state_acts   import, export, eviction

The worker of each bin at each time is `protocol.configuration`; records are folded by
`protocol.applying`.
"""
