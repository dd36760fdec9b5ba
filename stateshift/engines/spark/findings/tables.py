"""Whether the Delta tables that the job reads still have what it reads next. Pure.

the id        Delta starts no job over another table than the one that its offset names
the commits   from the offset's version on, each is read (with failOnDataLoss, the default)
the files     that these commits add
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.findings.topics import LOST
from stateshift.engines.spark.survey.delta_sources import delta_sources
from stateshift.survey import Endpoint, Facts, Finding, TableFacts

_NAME_IT = 'name it: "sources": [{"kind": "delta", "location": "…"}]'
_RESTORE = (
    "restore what is missing, or, where it is not needed (and the job has failOnDataLoss false), "
    f'"waive": ["{LOST}"]'
)


def of_tables(facts: Facts) -> Iterator[Finding]:
    """Yield what Delta no longer has, or does not yet have, of what each source reads next."""
    sources = delta_sources(facts)
    ids = {source.details["table_id"] for source in sources}
    for table in facts.tables:
        if table.wrong is not None:
            fact = f"the Delta table {table.location} could not be asked: {table.wrong}"
            hint = f"{table.hint}; {_RESTORE}" if table.hint else _RESTORE
            yield Finding("refuse", fact, LOST, hint)
        elif table.id not in ids:
            yield Finding(
                "refuse",
                f"{table.location} is another table than the one that the job has read (its id is "
                f"{table.id}, and the checkpoint has {', '.join(map(str, sorted(ids)))}): Delta "
                "does not start the job over it",
                hint="correct the location in `sources`, or bring the table there as it was, with "
                "its log",
            )
    for source in sources:
        tables = [table for table in facts.tables if table.id == source.details["table_id"]]
        for table in tables:
            yield _of_table(source, table)
        if not tables and not any(table.named for table in facts.tables):
            yield Finding(
                "note",
                f"whether version {source.details['version']} of the Delta table that source "
                f"{source.index} reads is still there was not asked: an offset does not say where "
                "the table lies",
                hint=_NAME_IT,
            )


def _of_table(source: Endpoint, table: TableFacts) -> Finding:
    version, newest = source.details["version"], table.newest
    at = f"{table.location}, which source {source.index} reads from version {version} on,"
    first = version + 1 if source.details["starting_snapshot"] else version
    gone = sorted(set(range(first, newest + 1)) - table.commits)
    if version > newest + 1 or (version > newest and source.details["starting_snapshot"]):
        fact = f"{at} ends at version {newest}: it was restored from an older copy, or recreated"
    elif gone:
        fact = f"{at} has no commit of version {gone[0]} any more: what it added was not read"
    elif first > version and not _has_snapshot(table, version):
        fact = f"{at} can no longer show that version, which the job has not read to its end"
    elif table.missing is not None:
        fact = f"{at} lacks a file that the job reads next: {table.missing}"
    else:
        looked = f", and {table.asked:,} files that it reads next" if table.asked else ""
        return Finding("note", f"{at} still has it{looked}")
    return Finding("refuse", fact, LOST, _RESTORE)


def _has_snapshot(table: TableFacts, version: int) -> bool:
    """Whether the log leads up to a version: from its beginning, or from a checkpoint."""
    starts = [-1, *(each for each in table.checkpoints if each <= version)]
    return any(table.commits.issuperset(range(start + 1, version + 1)) for start in starts)
