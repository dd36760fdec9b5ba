"""The work of `stateshift rebalance`: look, decide, and move through ordinary runs.

request    what somebody asks for
folder     where runs keep what they know: moves, decisions, memory
past       what earlier runs have done, by what they left: where jobs are, what is not finished
whereabouts  which jobs run, and on which cluster
surveying  clusters and jobs, measured: the situation that is decided on
move_spec  the ordinary spec of one move
choosing   a decision whose moves can all be planned
refused    moves that have failed, and are not tried again in vain
carrying   one move, carried out or gone on with
once       one run, from its lock to its outcome
replaying  a decision, made again from a file
"""
