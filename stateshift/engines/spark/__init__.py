"""Spark Structured Streaming: checkpoints surveyed, read as entries, verified and rewritten,
without a JVM.

    engine                  the one object that the rest of the program knows
    plan/                   the plan of a job, of a warm round, and of a standby
    findings/               what a person should know first: refusals, warnings, notes
    check/                  everything a restart needs, read to its end
    rewrite/                which files become which, and how: compact, split, merge, evolve ...
    views/                  entries, export and differences, for people and programs
    survey/                 what is there, and the cut that a restart begins from
    entries/                the state, with files and shards forgotten
    layout, small_files,    names, and which of them a restart reads
    chains, places,
    real_time, versions     (`versions`: the bounds between versions of Spark)

Imports point down, or along a row; `check`, `rewrite` and `views` do not know each other.
"""
