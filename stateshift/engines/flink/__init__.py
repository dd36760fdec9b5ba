"""Flink: savepoints and checkpoints surveyed, read as entries, verified and rewritten, without a
JVM.

    engine                  the one object that the rest of the program knows
    plan/                   the plan of a job, of a warm round, and of a standby
    findings/               what a person should know first: refusals, warnings, notes
    check/                  everything a restart needs, read to its end
    views/                  entries, export and differences, for people and programs
    survey/                 which files, operators and states there are
    rewrite/                which operators go along, and state for other subtasks or key groups
    entries/                the state, with files and subtasks forgotten
    changes                 what a spec's `transform` asks of images
    layout, streams,        names in an image's folders, and the bytes of its files
    places

Imports point down, or along a row; `findings`, `check` and `views` do not know each other.
"""
