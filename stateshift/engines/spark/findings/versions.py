"""The parts of an image that the target's Spark cannot read, though everything else fits: refused
before anything moves. Pure.

    state from before 3.0     not from 3.0 on, where a join is no inner one, or decimals are summed:
                              cannot be known, and is refused unless it is waived
    operators                 transformWithState is of 4.0, dropDuplicatesWithinWatermark of 3.5,
                              applyInPandasWithState of 3.4: no older Spark has them
    join state format 3, 4    4.1 on, 4.3 on; an older one takes the setting for invalid, and 4.2
                              stops with "State format version 4 is under development". (Format 1
                              goes on everywhere, for inner joins.)
    offset log v2             4.2 on: "UnsupportedLogVersion"; written where sources have names
    checkpoint format 2       4.0 on: "UnsupportedLogVersion"; before 4.3 the job has to say the
                              format itself, and 4.0 asks for every partition of a limit, of which a
                              newer one has the first alone
    row checksums             4.2 on. Before, they are taken for rows: most queries fail, a join in
                              4.1 lost rows
    list states of 4.2 on     not before 4.2: values are merged without the comma that is skipped
                              there
    RocksDB changelogs        3.5 on; before, a version is its zip
    RocksDB tables of 4.0 on  not 3.3: "unknown checksum type 4" (XXH3)

Each of them was seen on real Sparks (tests/versions.md). State that is rewritten on the way
(`transform`) no longer counts where its tables and zips are of the oldest kind that all of them
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stateshift.engines.spark.rewrite.move import Move, StateChange
from stateshift.engines.spark.rewrite.request import target_version
from stateshift.engines.spark.survey.restart.operators import PROVIDER, state_refused_since_3
from stateshift.engines.spark.versions import (
    CHANGELOGS,
    FORMAT_2,
    FORMAT_2_FOUND,
    FORMAT_2_SINGLE,
    JOINS,
    LIST_COMMAS,
    OFFSETS_2,
    OLD_STATE_REFUSED,
    OPERATORS,
    ROW_CHECKSUMS,
    TABLES_WITH_XXH3,
    numbers_of,
)
from stateshift.formats.spark.offset_conf import MERGE_OPERATOR, has_row_checksums
from stateshift.formats.spark.offsets import PARTITIONS
from stateshift.survey import Finding, Image

JOIN = "spark.sql.streaming.join.stateFormatVersion"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
JOIN_OPERATOR, TRANSFORMING = "symmetricHashJoin", "transformWithState"


@dataclass(frozen=True)
class Target:
    """The Spark that is to read it: as its cluster says it, and as numbers."""

    version: str
    parts: tuple[int, ...]

    def refused(
        self, fact: str, first: tuple[int, ...], waive: str | None = None, way: str = ""
    ) -> Finding:
        newer = f"use a target of Spark {'.'.join(map(str, first))} or newer"
        return Finding("refuse", fact, waive=waive, hint=f"{way}; or {newer}" if way else newer)


def of_versions(move: Move) -> Iterator[Finding]:
    """Refuse what the target does not read, where its version is known: its cluster says it."""
    version = target_version(move.facts) or ""
    parts = numbers_of(version)
    if not parts:
        return
    target = Target(version, parts)
    for image, name in move.named_images:
        for fact in state_refused_since_3(image.operators, image.settings):
            if parts >= OLD_STATE_REFUSED:
                yield Finding(
                    "refuse",
                    f"{name}: {fact}",
                    waive="old-state",
                    hint="where it is an inner join, and no decimals are summed, "
                    '"waive": ["old-state"]',
                )
        yield from _of_operators(image, name, target)
        yield from _of_settings(image, name, target)
        if "RocksDB" in image.settings.get(PROVIDER, ""):
            yield from _of_format(move, image, name, target)
            yield from _of_changelogs(move.change, image, name, target)
            yield from _of_tables(move.change, image, name, target)


def _of_settings(image: Image, name: str, target: Target) -> Iterator[Finding]:
    if image.settings.get(NAMED_SOURCES) == "true" and target.parts < OFFSETS_2:
        yield target.refused(
            f"{name} has an offset log of version 2, which Spark {target.version} does not read",
            OFFSETS_2,
        )
    if has_row_checksums(image.settings) and target.parts < ROW_CHECKSUMS:
        yield target.refused(
            f"the rows of {name} have checksums, which Spark {target.version} takes for a part of "
            "them",
            ROW_CHECKSUMS,
        )


def _of_operators(image: Image, name: str, target: Target) -> Iterator[Finding]:
    titles = [operator.name or "" for operator in image.operators]
    for title in dict.fromkeys(titles):
        for start, (called, first) in OPERATORS.items():
            if title.startswith(start) and target.parts < first:
                fact = f"{name} uses {called}, which Spark {target.version} does not have"
                yield target.refused(fact, first)
    state_format = image.settings.get(JOIN, "")
    first = JOINS.get(state_format, (0, 0))
    if JOIN_OPERATOR in titles and target.parts < first:
        fact = (
            f"{name} has a join of state format {state_format}, which Spark {target.version} "
            "does not read"
        )
        yield target.refused(fact, first)
    transforms = any(title.startswith(TRANSFORMING) for title in titles)
    merges_without_comma = image.settings.get(MERGE_OPERATOR) == "2"
    commas_since, commas_until = LIST_COMMAS
    expects_comma = commas_since <= target.parts < commas_until
    if transforms and merges_without_comma and expects_comma:
        yield target.refused(
            f"{name} may keep list states, and Spark {target.version} takes them apart "
            "otherwise than they were put together",
            commas_until,
            waive="list-state",
            way='where its processors use none, "waive": ["list-state"]',
        )


def _of_format(move: Move, image: Image, name: str, target: Target) -> Iterator[Finding]:
    """Refuse checkpoint format 2 where the target does not read it."""
    # Files of the state carry a uuid in their names; tables do in either format.
    names = [path.rpartition("/")[2] for path in image.state_files if not path.endswith(".sst")]
    if move.change.format_1 or not any("_" in file_name for file_name in names):
        return
    way = (
        'let it be written in format 1: "transform": [{"kind": "convert", '
        '"checkpoint_format": "v1"}]'
    )
    conf = (move.job.submit.options.get("conf") or {}) if move.job.submit is not None else {}
    if target.parts < FORMAT_2:
        fact = f"{name} is of checkpoint format 2, which Spark {target.version} does not read"
        yield target.refused(fact, FORMAT_2, way=way)
    elif target.parts < FORMAT_2_SINGLE and _has_single_shards(image):
        fact = (
            f"{name} is of checkpoint format 2 with an operator of one partition, which Spark "
            "4.0 does not take"
        )
        yield target.refused(fact, FORMAT_2_SINGLE, way=way)
    elif target.parts < FORMAT_2_FOUND and str(conf.get(FORMAT)) != "2":
        yield Finding(
            "warn",
            f"{name} is of checkpoint format 2, and Spark {target.version} does not find "
            "that out by itself: the job has to say so, or it does not start",
            hint=f'"{FORMAT}": "2" in its settings; or {way}',
        )


def _has_single_shards(image: Image) -> bool:
    """Whether a newer Spark wrote an operator that has one shard, where the query has more."""
    is_newer = image.written_by not in (None, "4.0 or later")
    if not is_newer or image.settings.get(PARTITIONS) == "1":
        return False
    return any(operator.shards == 1 for operator in image.operators)


def _of_changelogs(
    change: StateChange, image: Image, name: str, target: Target
) -> Iterator[Finding]:
    has_changelogs = any(path.endswith(".changelog") for path in image.state_files)
    if has_changelogs and not change.rewrites_state and target.parts < CHANGELOGS:
        yield Finding(
            "refuse",
            f"{name} keeps RocksDB changelogs, of which Spark {target.version} knows nothing",
            hint='let it be written as tables: "transform": [{"kind": "compact"}]; or use a '
            "Spark from 3.5 on",
        )


def _of_tables(change: StateChange, image: Image, name: str, target: Target) -> Iterator[Finding]:
    # A compaction copies tables that need none.
    copies_tables = not replace(change, compact=False).rewrites_state
    is_newer = image.written_by is not None and image.written_by.startswith("4.")
    has_tables = any(path.endswith(".sst") for path in image.state_files)
    if has_tables and copies_tables and is_newer and target.parts < TABLES_WITH_XXH3:
        fact = (
            f"{name} has RocksDB tables whose checksums (XXH3) Spark {target.version} does not know"
        )
        yield target.refused(fact, TABLES_WITH_XXH3)
