"""The live runtime's protocol: what its workers and its coordinator decide, as values. Pure.

    hash of a key ──bin_of──▶ bin ──Configuration.worker(time, bin)──▶ worker

    assignment now, assignment wanted ──moves_between──▶ moves ──in_steps──▶ steps
    steps ──Rollout──▶ updates ──▶ workers

Keys that move between workers (Megaphone, PVLDB 12(9), 2019):

    bins                  classes of keys that move as one: the leading bits of a key's hash
    configuration         (time, bin) -> worker, changed by updates; retired, split, merged
    frontiers             how far a worker without bins counts as having come; whose moves are left
    resizing              bins split or merged while workers run: who may count by which number
    moves                 what differs between two assignments; `dataflow.move_steps` has the
                          strategies
    rollout               when a step may start: flow control, drain gaps, prepared moves
    plan_file             the file format of Megaphone's experiments
    folded                what an operator computes of a key's values
    applying              values are folded in the order of their times

Tasks that move to another place at a checkpoint (BTW 2018):

    task_flow             operators, tasks and exchange patterns; the migration asked for
    coordinator_messages  the states of a task, and the messages it and the coordinator exchange
    coordinator           checks, triggers, counts acknowledgements, completes or aborts

`models` runs all of it in every order of events.
"""
