"""The jobs to move between clusters, and the reasons for which the others stay. Pure: the same
situation gives the same decision, whenever it is asked for.

    situation   clusters, their jobs, the needs of each; and the policy: the numbers that decide
    limits      the limits that forbid a move, each by name; the cost and the gain of one
    memory      earlier runs, and whether they brought what they promised; the triggers: loads over
                their bounds, run after run
    placement   the best places of jobs: exact where there are few, greedy with a bound where many
    decision    all of it together: the moves of this run, and each job that stays
    outcome     the moves of a run, as they were carried out
"""
