"""Which jobs to move between clusters, and why the others stay. Pure: the same situation gives the
same decision, whenever it is asked for.

situation   clusters, their jobs, what each needs and costs to move
policy      what decides, with its defaults
limits      what forbids a move, each by name
triggers    when something is done at all: loads over their bounds, run after run
placement   where jobs would best be: exact where there are few, greedy with a bound where many
worth       what a move costs and brings, both in records that wait
memory      what earlier runs did, and whether it brought what it promised
decision    all of it together: the moves of this run, and each job that stays
"""
