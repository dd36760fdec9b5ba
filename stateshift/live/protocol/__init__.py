"""The live runtime's protocol: the decisions of its workers and of whoever moves bins, as values.
Pure.

    hash of a key ──bin_of──▶ bin ──Configuration.worker(time, bin)──▶ worker

    assignment now, assignment wanted ──moves_between──▶ moves ──in_steps──▶ steps
    steps ──Rollout──▶ updates ──▶ workers

Keys that move between workers (Megaphone, PVLDB 12(9), 2019):

    configuration   bins, and (time, bin) -> worker, changed by updates; retired, split, merged;
                    `dataflow.move_steps` has the strategies. Frontiers: how far a worker
                    without bins counts as having come; moves that are left
    rollout         when a step may start: flow control, drain gaps, updates ahead of their time
    plan_file       the file format of Megaphone's experiments
    applying        what an operator computes of a key's values, in the order of their times

`chains` says which functions of a chain hold for which rows. `tests/models` runs all of it in every
order of events.
"""
