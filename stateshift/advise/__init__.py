"""When a job should get more or fewer workers, or another cluster: measured, never acted upon.

evaluate    from samples to a verdict: pure, so that a decision can be made again from its inputs
measuring   what clusters have and jobs need, for rebalance
rebalance   which jobs to move between clusters, and why the others stay: pure as well
"""
