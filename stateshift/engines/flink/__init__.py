"""Flink: savepoints and checkpoints surveyed, read as entries, verified and rewritten, without a
JVM.

    planner, transforms   the plan of a job, and the pure transforms that it names
    findings, saving      what a person should know first  |  in which format a savepoint is taken
    choosing, editing     which operators of which images go along, and what becomes of the metadata
    rescaling, loose      keyed state for other subtasks or key groups  |  what belongs to no key, dealt anew
    survey, operators     what is there: files, operators, states, how evenly key groups are filled
    looks                 what is shown to who looks at an image, by those in the next two lines
    deep, showing         everything read to its end  |  entries decoded, for a person
    differing, exporting  two images compared by their entries  |  state as rows for other programs
    entries               the state, with files and subtasks forgotten: what images are compared by
    reading, places       bytes of an image, and where its files lie
    folders, layout       where an image lies in a folder, and names

Imports point down, or along a row.
"""
