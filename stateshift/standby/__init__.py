"""A standby seen from its target alone, by a machine that has nothing of the run that feeds it.

location   what is at the target: the state file and the claim; the spec that starts the job
"""
