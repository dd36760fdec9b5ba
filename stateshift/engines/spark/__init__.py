"""Spark Structured Streaming: checkpoints surveyed, read as entries, verified and rewritten,
without a JVM.

    planner, transforms    the plan of a job, and the pure transforms that it names
    findings/              what a person should know first: refusals, warnings, notes
    looks, showing/        an image's entries, export and differences, and whether a job could
                           restart from it
    deep/      reshaping/  everything read to its end    |  which files become which, and how:
                                                            compact ... evolve
    survey                 what is there (restart, endpoints, schemas): the cut that a restart
                           begins from
    entries/   decoding    the state, with files and shards forgotten  |  one file, for a person
    layout                 names, and which of them a restart reads (reading, chains, places,
                           bundles, naming,
                           dividing)

Imports point down, or along a row; `deep`, `reshaping` and `showing` do not know each other.
"""
