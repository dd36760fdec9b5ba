"""Whether the target cluster can reach the places that the job is handed: as far as it can be known
before. Pure.

    file://       each machine's own disk: fits a cluster on this machine, or a disk that all of
                  them share
    s3://         Spark has no file system of that name: Hadoop's is s3a (Amazon's own EMR has one)
    s3a, gs, ...  a connector, which Spark does not bring along
    hdfs://name/  a nameservice of the configuration that the cluster's Spark reads

A cluster that was asked and said yes or no (`reach` of a command) has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.specification import JobSpec, Spec
from stateshift.survey import ClusterFacts, Facts, Finding

WAIVER = "target-reach"
SPARKS = ("spark_submit", "spark_standalone", "livy")
CONNECTORS = {
    "s3a": "hadoop-aws",
    "gs": "the GCS connector",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
    "wasb": "hadoop-azure",
    "wasbs": "hadoop-azure",
    "oss": "hadoop-aliyun",
    "cosn": "hadoop-cos",
}
UNKNOWN_TO_SPARK = ("s3", "s3n", "az", "adl", "gcs", "memory")


def of_reach(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[Finding]:
    cluster = facts.target_cluster
    if cluster is None:
        return
    if cluster.reaches is False:
        yield _refused(
            f"{cluster.name} says that it does not reach {job.destination}",
            "see to its network and its credentials, or correct its `reach`",
        )
    places = {_parts(place): place for place in (job.destination, *(d.target for d in job.data))}
    for (kind, authority), place in places.items():
        yield from _of_place(spec, job, cluster, place, kind, authority)


def _parts(place: str) -> tuple[str, str]:
    """Scheme and authority as they are typed: to Hadoop, s3 and s3a are two."""
    kind, _, rest = place.partition("://")
    return kind, rest.partition("/")[0]


def _of_place(
    spec: Spec, job: JobSpec, cluster: ClusterFacts, place: str, kind: str, authority: str
) -> Iterator[Finding]:
    if kind == "file":
        if cluster.host and cluster.reaches is not True:
            yield _refused(
                f"{place} is on a disk of this machine, and {cluster.name} runs jobs "
                f"elsewhere ({cluster.host}): they "
                "would look for it on their own",
                "name a place that both reach",
                "where it is a disk that all of them share",
            )
        return
    if (
        kind in UNKNOWN_TO_SPARK
        and cluster.kind in SPARKS
        and not _is_set(spec, job, f"spark.hadoop.fs.{kind}.impl")
    ):
        way = (
            "write s3a:// in its place"
            if kind in ("s3", "s3n")
            else "write the scheme that Hadoop knows it by"
        )
        yield _refused(
            f"the job would be handed {place}, and Spark has no file system for {kind}://",
            way,
            f"where {cluster.name} has one (EMR does)",
        )
    elif cluster.reaches is None:
        yield Finding(
            "note",
            f"whether {cluster.name} reaches {place} was not asked: {_needs(kind, authority)}",
        )


def _needs(kind: str, authority: str) -> str:
    if kind in CONNECTORS:
        return (
            f"it needs {CONNECTORS[kind]}, which Spark does not bring along, and credentials "
            "of its own"
        )
    if kind == "hdfs" and authority and ":" not in authority and "." not in authority:
        return f"its Hadoop configuration has to know {authority}, too"
    return "it needs a way there, and credentials of its own"


def _is_set(spec: Spec, job: JobSpec, name: str) -> bool:
    """Whether the spec gives the job this setting."""
    submit = job.submit.options if job.submit is not None else {}
    cluster = spec.cluster(job.target_cluster).options if job.target_cluster else {}
    return any(name in (options.get("conf") or {}) for options in (submit, cluster))


def _refused(fact: str, way: str, sane: str = "") -> Finding:
    waive = f'; or, {sane}, "waive": ["{WAIVER}"]' if sane else f'; or "waive": ["{WAIVER}"]'
    return Finding("refuse", fact, waive=WAIVER, hint=way + waive)
