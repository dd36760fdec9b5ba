"""Whether the target cluster can reach the places that the job is handed: as far as it can be known
before. Pure.

    file://       each machine's own disk: fits a cluster on this machine, or a disk that all of
                  them share
    s3://         Spark has no file system of that name: Hadoop's is s3a (Amazon's own EMR has one)
    s3a, gs, ...  a connector, which is not part of Spark
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
UNKNOWN_TO_SPARK = ("s3", "s3n", "s3p", "az", "adl", "gcs", "memory")


def of_reach(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield the places that the target cluster does not reach, or may not reach."""
    cluster = facts.target_cluster
    if cluster is None:
        return
    if cluster.reaches is False:
        yield _refused(
            f"{cluster.name} says that it does not reach {job.destination}",
            "see to its network and its credentials, or correct its `reach`",
        )
    places = (job.destination, *(data.target for data in job.data))
    by_file_system = {_parts(place): place for place in places}
    for (scheme, authority), place in by_file_system.items():
        if scheme == "file":
            yield from _of_disk(cluster, place)
        elif cluster.kind in SPARKS and _is_unknown(spec, job, scheme):
            yield _without_file_system(cluster, place, scheme)
        elif cluster.reaches is None:
            yield _unasked(cluster, place, _needs(scheme, authority))


def _unasked(cluster: ClusterFacts, place: str, needed: str) -> Finding:
    return Finding("note", f"whether {cluster.name} reaches {place} was not asked: {needed}")


def _parts(place: str) -> tuple[str, str]:
    """Return scheme and authority as they are typed: to Hadoop, s3 and s3a are two."""
    scheme, _, rest = place.partition("://")
    return scheme, rest.partition("/")[0]


def _of_disk(cluster: ClusterFacts, place: str) -> Iterator[Finding]:
    if cluster.host and cluster.reaches is not True:
        yield _refused(
            f"{place} is on a disk of this machine, and {cluster.name} runs jobs "
            f"elsewhere ({cluster.host}): they would look for it on their own",
            "name a place that both reach",
            "where it is a disk that all of them share",
        )


def _is_unknown(spec: Spec, job: JobSpec, scheme: str) -> bool:
    """Whether Spark has no file system of this name, and the spec gives it none."""
    return scheme in UNKNOWN_TO_SPARK and not _is_set(spec, job, f"spark.hadoop.fs.{scheme}.impl")


def _without_file_system(cluster: ClusterFacts, place: str, scheme: str) -> Finding:
    way = "write the scheme that Hadoop knows it by"
    if scheme in ("s3", "s3n", "s3p"):
        way = "write s3a:// in its place"
    return _refused(
        f"the job would be handed {place}, and Spark has no file system for {scheme}://",
        way,
        f"where {cluster.name} has one (EMR does)",
    )


def _needs(scheme: str, authority: str) -> str:
    """Return what it takes to reach a place."""
    if scheme in CONNECTORS:
        return (
            f"it needs {CONNECTORS[scheme]}, which is not part of Spark, and credentials of its own"
        )
    is_nameservice = bool(authority) and not {":", "."} & set(authority)
    if scheme == "hdfs" and is_nameservice:
        return f"its Hadoop configuration has to know {authority}, too"
    return "it needs a way there, and credentials of its own"


def _is_set(spec: Spec, job: JobSpec, name: str) -> bool:
    """Whether the spec gives the job this setting."""
    submit = job.submit.options if job.submit is not None else {}
    cluster = spec.cluster(job.target_cluster).options if job.target_cluster else {}
    return any(name in (options.get("conf") or {}) for options in (submit, cluster))


def _refused(fact: str, way: str, fine_where: str = "") -> Finding:
    """Return a refusal. It may be waived; sensibly only `fine_where`, if that is said."""
    condition = f", {fine_where}," if fine_where else ""
    return Finding("refuse", fact, waive=WAIVER, hint=f'{way}; or{condition} "waive": ["{WAIVER}"]')
