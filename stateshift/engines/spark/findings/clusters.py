"""The Sparks of both ends, the one that wrote the checkpoint (IS-18), and whether the target's
cluster can reach the places that the job is handed. Pure.

Only the same or similar versions are meant to carry on each other's jobs. The versions that the
clusters say are compared, also with the one that the settings in the offset log tell of the Spark
that wrote it, whichever of them is known. Reach, as far as it can be known before:

    file://       each machine's own disk: fits a cluster on this machine, or a disk that all of
                  them share
    s3://         Spark has no file system of that name: Hadoop's is s3a (Amazon's own EMR has one)
    s3a, gs, ...  a connector, which is not part of Spark
    hdfs://name/  a nameservice of the configuration that the cluster's Spark reads

A cluster that was asked and said yes or no (`reach` of a command) has the last word.

Parts of an image that the target's Spark cannot read are refused before anything moves:

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

from stateshift.engines.spark import versions
from stateshift.engines.spark.rewrite.move import Move, StateChange
from stateshift.engines.spark.rewrite.request import target_version
from stateshift.engines.spark.survey.restart.operators import PROVIDER, state_refused_since_3
from stateshift.formats.spark.offset_conf import MERGE_OPERATOR, has_row_checksums
from stateshift.formats.spark.offsets import NAMED_SOURCES, PARTITIONS
from stateshift.specification.location import scheme_named
from stateshift.specification.options import SPARK_KINDS
from stateshift.survey import Facts, Finding, Image

WAIVER = "target-reach"
JOIN = "spark.sql.streaming.join.stateFormatVersion"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
JOIN_OPERATOR, TRANSFORMING = "symmetricHashJoin", "transformWithState"


def of_ends(move: Move) -> Iterator[Finding]:
    """Report a target's Spark that is older than the job's, or another one, or not known."""
    source, target = move.facts.source_cluster, move.facts.target_cluster
    writer = _written_by(move.facts)
    running = () if source is None else versions.numbers_of(source.version)
    if source is not None and running and running >= versions.numbers_of(writer):
        newest, newest_shown = running, f"{source.version} on {source.name}"
    elif writer is not None:
        newest, newest_shown = versions.numbers_of(writer), f"{writer}, which wrote the checkpoint"
    else:
        return
    if target is None:
        return  # without a cluster, `of_clusters` says which Spark wrote the checkpoint
    target_version = versions.numbers_of(target.version)
    if not target_version:
        hints = {
            "command": f'give {target.name} a "version" command',
            "manual": f'give {target.name} its "version"',
        }
        yield Finding(
            "note",
            f"{target.name} does not say which Spark it runs: whether it is older than "
            f"{newest_shown}, is not known",
            hint=hints.get(target.kind, "ask its administrator"),
        )
    elif target_version < newest:
        yield Finding(
            "refuse",
            f"{target.name} runs Spark {target.version}, older than {newest_shown}: it may not "
            "read what the newer one wrote",
            waive="older-target",
            hint='use a target of the same version, or "waive": ["older-target"]',
        )
    elif source is not None and running and running != target_version:
        yield Finding(
            "warn", f"Spark {source.version} on {source.name}, {target.version} on {target.name}"
        )


def _written_by(facts: Facts) -> str | None:
    """Return the newest Spark that an image must have been written by, as its survey says it."""
    written = [image.written_by for image in facts.source_images if image.written_by is not None]
    return max(filter(versions.numbers_of, written), key=versions.numbers_of, default=None)


def of_clusters(move: Move) -> Iterator[Finding]:
    """Yield the clusters' own findings, and a note where the spec does not start the job."""
    facts = move.facts
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    if move.job.submit is not None or move.job.target is None:
        return
    fact = "the spec has no `submit` (`move`: --start): start the job on the target yourself"
    writer = _written_by(facts)
    if facts.target_cluster is None and writer is not None:
        fact += f" (Spark {writer} wrote it)"
    yield Finding("note", fact)


def of_reach(move: Move) -> Iterator[Finding]:
    """Yield the places that the target cluster does not reach, or may not reach."""
    cluster, job = move.facts.target_cluster, move.job
    if cluster is None:
        return
    if cluster.reaches is False:
        yield _refused(
            f"{cluster.name} says that it does not reach {job.destination}",
            "see to its network and its credentials, or correct its `reach`",
        )
    places = (job.destination, *(data.target for data in job.data))
    by_file_system = {}
    for place in places:  # as it is typed: to Hadoop, s3 and s3a are two
        scheme, _, rest = place.partition("://")
        by_file_system[scheme, rest.partition("/")[0]] = place
    for (scheme, authority), place in by_file_system.items():
        if scheme == "file":
            if cluster.host and cluster.reaches is not True:
                yield _refused(
                    f"{place} is on a disk of this machine, and {cluster.name} runs jobs "
                    f"elsewhere ({cluster.host}): they would look for it on their own",
                    "name a place that both reach",
                    "where it is a disk that all of them share",
                )
        elif cluster.kind in SPARK_KINDS and _is_unknown_to_spark(move, scheme):
            way = "write the scheme that Hadoop knows it by"
            if scheme_named(scheme).file_system == "s3":
                way = "write s3a:// in its place"
            fact = f"the job would be handed {place}, and Spark has no file system for {scheme}://"
            yield _refused(fact, way, f"where {cluster.name} has one (EMR does)")
        elif cluster.reaches is None:
            yield Finding(
                "note",
                f"whether {cluster.name} reaches {place} was not asked: "
                f"{_needs(scheme, authority)}",
            )


def _is_unknown_to_spark(move: Move, scheme: str) -> bool:
    """Whether Spark has no file system of this name, and the spec does not give the job one."""
    if scheme_named(scheme).connector is not None:
        return False
    job = move.job
    submit = job.submit.options if job.submit is not None else {}
    cluster = move.spec.cluster(job.target_cluster).options if job.target_cluster else {}
    setting = f"spark.hadoop.fs.{scheme}.impl"
    return not any(setting in (options.get("conf") or {}) for options in (submit, cluster))


def _needs(scheme: str, authority: str) -> str:
    connector = scheme_named(scheme).connector
    if connector:
        return f"it needs {connector}, which is not part of Spark, and credentials of its own"
    is_nameservice = bool(authority) and not {":", "."} & set(authority)
    if scheme == "hdfs" and is_nameservice:
        return f"its Hadoop configuration has to know {authority}, too"
    return "it needs a way there, and credentials of its own"


def _refused(fact: str, way: str, fine_where: str = "") -> Finding:
    """Return a refusal. It may be waived; sensibly only `fine_where`, if that is said."""
    condition = f", {fine_where}," if fine_where else ""
    return Finding("refuse", fact, waive=WAIVER, hint=f'{way}; or{condition} "waive": ["{WAIVER}"]')


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
    parts = versions.numbers_of(version)
    if not parts:
        return
    target = Target(version, parts)
    for image, name in move.named_images:
        for fact in state_refused_since_3(image.operators, image.settings):
            if parts >= versions.OLD_STATE_REFUSED:
                hint = (
                    'where it is an inner join, and no decimals are summed, "waive": ["old-state"]'
                )
                yield Finding("refuse", f"{name}: {fact}", waive="old-state", hint=hint)
        yield from _of_operators(image, name, target)
        has_names = image.settings.get(NAMED_SOURCES) == "true" or move.change.names_sources
        if has_names and target.parts < versions.OFFSETS_2:
            yield target.refused(
                f"{name} has an offset log of version 2, which Spark {target.version} does not "
                "read",
                versions.OFFSETS_2,
            )
        if has_row_checksums(image.settings) and target.parts < versions.ROW_CHECKSUMS:
            yield target.refused(
                f"the rows of {name} have checksums, which Spark {target.version} takes for a "
                "part of them",
                versions.ROW_CHECKSUMS,
            )
        if "RocksDB" in image.settings.get(PROVIDER, ""):
            yield from _of_format(move, image, name, target)
            yield from _of_changelogs(move.change, image, name, target)
            yield from _of_tables(move.change, image, name, target)


def _of_operators(image: Image, name: str, target: Target) -> Iterator[Finding]:
    titles = [operator.name or "" for operator in image.operators]
    for title in dict.fromkeys(titles):
        for start, (called, first) in versions.OPERATORS.items():
            if title.startswith(start) and target.parts < first:
                fact = f"{name} uses {called}, which Spark {target.version} does not have"
                yield target.refused(fact, first)
    state_format = image.settings.get(JOIN, "")
    first = versions.JOINS.get(state_format, (0, 0))
    if JOIN_OPERATOR in titles and target.parts < first:
        fact = (
            f"{name} has a join of state format {state_format}, which Spark {target.version} "
            "does not read"
        )
        yield target.refused(fact, first)
    transforms = any(title.startswith(TRANSFORMING) for title in titles)
    merges_without_comma = image.settings.get(MERGE_OPERATOR) == "2"
    commas_since, commas_until = versions.LIST_COMMAS
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
    # Files of the state carry a uuid in their names; tables do in either format.
    names = [path.rpartition("/")[2] for path in image.state_files if not path.endswith(".sst")]
    asked = move.change.checkpoint_format
    is_of_format_2 = any("_" in name for name in names) if asked is None else asked == "v2"
    if not is_of_format_2:
        return
    way = (
        'let it be written in format 1: "transform": [{"kind": "convert", '
        '"checkpoint_format": "v1"}]'
    )
    conf = (move.job.submit.options.get("conf") or {}) if move.job.submit is not None else {}
    if target.parts < versions.FORMAT_2:
        fact = f"{name} is of checkpoint format 2, which Spark {target.version} does not read"
        yield target.refused(fact, versions.FORMAT_2, way=way)
    elif target.parts < versions.FORMAT_2_SINGLE and _has_single_shards(image):
        fact = (
            f"{name} is of checkpoint format 2 with an operator of one partition, which Spark "
            "4.0 does not take"
        )
        yield target.refused(fact, versions.FORMAT_2_SINGLE, way=way)
    elif target.parts < versions.FORMAT_2_FOUND and str(conf.get(FORMAT)) != "2":
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
    if has_changelogs and not change.rewrites_state and target.parts < versions.CHANGELOGS:
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
    if has_tables and copies_tables and is_newer and target.parts < versions.TABLES_WITH_XXH3:
        fact = (
            f"{name} has RocksDB tables whose checksums (XXH3) Spark {target.version} does not know"
        )
        yield target.refused(fact, versions.TABLES_WITH_XXH3)
