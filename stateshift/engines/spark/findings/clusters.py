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
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.versions import numbers_of
from stateshift.specification.options import SPARK_KINDS
from stateshift.specification.schemes import scheme_named
from stateshift.survey import Facts, Finding

WAIVER = "target-reach"


def of_ends(move: Move) -> Iterator[Finding]:
    """Report a target's Spark that is older than the job's, or another one, or not known."""
    source, target = move.facts.source_cluster, move.facts.target_cluster
    writer = _written_by(move.facts)
    running = () if source is None else numbers_of(source.version)
    if source is not None and running and running >= numbers_of(writer):
        newest, newest_shown = running, f"{source.version} on {source.name}"
    elif writer is not None:
        newest, newest_shown = numbers_of(writer), f"{writer}, which wrote the checkpoint"
    else:
        return
    if target is None:
        return  # without a cluster, `of_clusters` says which Spark wrote the checkpoint
    target_version = numbers_of(target.version)
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
    return max(filter(numbers_of, written), key=numbers_of, default=None)


def of_clusters(move: Move) -> Iterator[Finding]:
    """Yield the clusters' own findings, and a note where the spec does not start the job."""
    facts = move.facts
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    if move.job.submit is not None or move.job.target is None:
        return
    fact = "the spec has no `submit`: start the job on the target yourself"
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
    by_file_system = {_file_system(place): place for place in places}
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
            yield _refused(
                f"the job would be handed {place}, and Spark has no file system for {scheme}://",
                way,
                f"where {cluster.name} has one (EMR does)",
            )
        elif cluster.reaches is None:
            yield Finding(
                "note",
                f"whether {cluster.name} reaches {place} was not asked: "
                f"{_needs(scheme, authority)}",
            )


def _file_system(place: str) -> tuple[str, str]:
    """Return scheme and authority as they are typed: to Hadoop, s3 and s3a are two."""
    scheme, _, rest = place.partition("://")
    return scheme, rest.partition("/")[0]


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
    """Return the means to reach a place."""
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
