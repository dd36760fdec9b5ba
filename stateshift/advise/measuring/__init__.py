"""What `rebalance` measures of clusters and jobs, in its units.

capacity     how much a cluster has, and how much of it is taken
needs        what a job needs to keep up, by the verdict on it
state_size   how many bytes a move has to bring
"""
