"""The work of `stateshift rebalance`: look, decide, and move through ordinary runs.

request    a request for a run
folder     the files in which runs keep what they know: moves, decisions, memory
past       what earlier runs have done, by what they left: where jobs are, what is not finished,
           moves that have failed, which are not tried again in vain, and how long restarts took
whereabouts  which jobs run, and on which cluster
survey     clusters and jobs, measured: the situation that is decided on
move_spec  the ordinary spec of one move
choosing   a decision whose moves can all be planned
draining   whether clusters that were to be emptied are
once       one run, from its lock to its outcome, each move carried out or gone on with; or only its
           decision, again from a file
"""
