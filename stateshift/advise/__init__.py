"""Advice on jobs that should get more or fewer workers, or another cluster: measured, never acted
upon.

    evaluate    from samples to a verdict: pure, to make a decision again from its inputs
    measuring   the capacity of clusters and the needs of jobs, for rebalance
    rebalance   the jobs to move between clusters, and the reasons of the others: pure as well
"""
