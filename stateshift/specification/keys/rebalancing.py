"""The keys of `rebalance`: between which clusters jobs may move, and when."""

from __future__ import annotations

from stateshift.specification.keys.key import Key, Keys
from stateshift.specification.model import RebalancedCluster, Rebalancing


def _rebalance(name: str, kind: str, about: str) -> Key:
    return Key(name, kind, about, Rebalancing, name)


REBALANCE = Keys(
    _rebalance(
        "clusters",
        "rebalanced_clusters",
        "The clusters that jobs may move between: a map by name. Left out, all of the spec's.",
    ),
    _rebalance("pinned", "texts", "Jobs that stay where they are: names, or patterns (audit-*)."),
    _rebalance("paused", "texts", "Jobs that are left alone for now: names, or patterns."),
    _rebalance(
        "cordon", "texts", "Clusters that nothing moves to. Jobs that are there may leave, or stay."
    ),
    _rebalance(
        "together",
        "together",
        "Jobs that move together: a list of groups, each a list of names or patterns. Jobs of one "
        "dataflow component do so anyway.",
    ),
    _rebalance(
        "excluded",
        "excluded",
        "When nothing is moved: hours of the day (07:00-09:30), or a cron expression of five "
        "fields, whose minutes are excluded.",
    ),
    _rebalance("timezone", "text", "Whose hours these are, such as Europe/Athens."),
    _rebalance(
        "warm", "boolean", "Whether most of a job's image is copied while the job still runs."
    ),
    _rebalance(
        "load_max",
        "share",
        "A cluster's load after a move into it, as a part of its capacity: at most 1.",
    ),
    _rebalance("trigger", "number", "A cluster is too full above so many times the mean."),
    _rebalance("aim", "number", "And even enough below so many times the mean."),
    _rebalance("idle_below", "amount", "No cluster below this part of its capacity is too full."),
    _rebalance("runs", "count", "In how many runs in a row a cluster must have been too full."),
    _rebalance(
        "runs_within", "duration", "Runs that are further apart than this are none in a row (2h)."
    ),
    _rebalance("gain_min", "amount", "A move must bring so many times what it costs."),
    _rebalance(
        "relief_min",
        "amount",
        "A move must take at least so much load off its cluster: slots or cores (0.1).",
    ),
    _rebalance("horizon", "duration", "For how long a move's gain is counted (1h)."),
    _rebalance("cool_down", "duration", "A job that was moved stays for so long (1h)."),
    _rebalance(
        "remembered",
        "duration",
        "A move that did not bring what it promised is not repeated for so long (24h).",
    ),
    _rebalance("moves_max", "count", "Moves in one run from one cluster to another, at most."),
    _rebalance("age_max", "duration", "Samples that are older count for nothing (2h)."),
    _rebalance(
        "scale",
        "boolean",
        "Whether jobs of Flink get the parallelism that they need: more where they are, if they "
        "cannot keep up and that is worth a restart; more or fewer on the way of a move.",
    ),
    _rebalance("parallelism_min", "count", "No job is scaled to less than this (1)."),
    _rebalance("parallelism_max", "count", "No job is scaled to more than this."),
)

REBALANCED_CLUSTER = Keys(
    Key(
        "capacity",
        "capacity",
        "How much it has: slots of Flink, cores of Spark; or an object. Left out, it is asked.",
        RebalancedCluster,
        None,
    ),
    Key(
        "other_load",
        "amount",
        "What other jobs have of it. Left out, it is asked.",
        RebalancedCluster,
        "other_load",
    ),
    Key(
        "images",
        "location",
        "Where a job's image lies there, with {job} and {move}. Left out on all clusters, images "
        "stay where they are: all clusters must reach them.",
        RebalancedCluster,
        "images",
    ),
)

CAPACITY = Keys(
    Key("slots", "number", "How many slots it has, with Flink."),
    Key("cores", "number", "How many cores it has, with Spark."),
    Key("memory", "size", "How much memory its executors may have: bytes, or 64g."),
)
