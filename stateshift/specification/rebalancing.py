"""The section `rebalance`: between which clusters jobs may be moved, and when.

    "rebalance": {
      "clusters": {"west": {"capacity": 16, "images": "s3a://west/state/{job}/{move}"},
                   "east": {"capacity": {"slots": 16, "memory": "64g"},
                            "images": "s3a://east/state/{job}/{move}"}},
      "pinned": ["fraud"], "together": [["orders", "payments"]], "excluded": ["07:00-09:30"]}

`REBALANCE_OBJECT` reads it; `check_rebalancing` holds it against the jobs and clusters of the spec.
Jobs are named by their names, or by patterns of them: `orders-*`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from stateshift.specification.jobs import ReadJob
from stateshift.specification.key import Key, Keys, Kind, Reader, Values, either, map_to, reference
from stateshift.specification.model import RebalancedCluster, Rebalancing, Spec
from stateshift.specification.place import Complaints, Flaws, Place
from stateshift.specification.values import (
    ABOVE_ZERO,
    AMOUNT,
    BOOLEAN,
    COUNT,
    DECIMAL,
    DURATION,
    EXCLUDED,
    LISTS_OF_NAMES,
    LOCATION,
    NUMBER,
    SHARE,
    SIZE,
    TEXT,
    TEXTS,
    Read,
    object_of,
)
from stateshift.suggestion import did_you_mean

JOB, MOVE = "{job}", "{move}"
# One list of jobs, here and in `waves`.
WAVE = TEXTS("The jobs that move together.")
_WILD = "*?["
_TARGETS = ("target_cluster", "remote_location", "new_savepoint_path", "remote_connection")
_IMAGES = ("existing_savepoint_paths", "job_ids", "merge_jobs", "transform", "data")


def is_pattern(name: str) -> bool:
    """Whether a job's name stands for the names of several."""
    return any(letter in name for letter in _WILD)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a job. A job that stands for several may be named by one of them."""
    return fnmatchcase(name, pattern) or (is_pattern(name) and fnmatchcase(pattern, name))


# -------------------------------------------------------------------------- reading

CAPACITY = Keys(
    None,
    slots=NUMBER("How many slots it has, with Flink."),
    cores=NUMBER("How many cores it has, with Spark."),
    memory=SIZE("How much memory its executors may have: bytes, or 64g."),
)


def _capacity(reader: Reader, key: Key, place: Place) -> Values:
    """Return the fields of a cluster that a number or an object fills."""
    if not isinstance(place.value, dict):
        count = reader.value(CAPACITY["slots"], place)
        return {} if count is None else {"capacity": count}
    fields = reader.fields(CAPACITY, reader.known(place, CAPACITY))
    counts = [fields.pop(name) for name in ("slots", "cores") if name in fields]
    if len(counts) > 1:
        reader.complaints.add(place, "both 'slots' and 'cores'", "one of them")
    if counts:
        fields["capacity"] = counts[0]
    return fields


CAPACITY_VALUE = Kind(
    "capacity", _capacity, either(ABOVE_ZERO, DECIMAL, reference("capacity_of")), shared=True
)
REBALANCED_CLUSTER = Keys(
    RebalancedCluster,
    capacity=CAPACITY_VALUE(
        "How much it has: slots of Flink, cores of Spark; or an object. Left out, it is asked."
    ),
    other_load=AMOUNT("What other jobs have of it. Left out, it is asked."),
    images=LOCATION(
        "Where a job's image lies there, with {job} and {move}. Left out on all clusters, images "
        "stay where they are: all clusters must reach them."
    ),
)


def _clusters(reader: Reader, key: Key, place: Place) -> tuple[RebalancedCluster, ...]:
    if not reader.is_a(place, dict, "a map of clusters by name"):
        return ()
    clusters = []
    for name in place.value:
        known = reader.known(place / name, REBALANCED_CLUSTER)
        if not isinstance(place.value[name], dict):
            continue
        capacity = known.pop("capacity", None)
        fields = reader.fields(REBALANCED_CLUSTER, known)
        if capacity is not None:
            fields |= reader.value(REBALANCED_CLUSTER["capacity"], capacity)
        for part in (JOB, MOVE):
            if part not in fields.get("images", f"{JOB}{MOVE}"):
                message = f"without {part}, two images would lie at one place"
                expected = f"a location with {JOB} and {MOVE}"
                reader.complaints.add(known["images"], message, expected)
        clusters.append(RebalancedCluster(name, **fields))
    return tuple(clusters)


def job_groups(expected: str, expected_group: str, empty: str = "") -> Read:
    """Return a reader of lists of jobs; `empty` is the complaint of one without jobs."""

    def read(reader: Reader, key: Key, place: Place) -> tuple[tuple[str, ...], ...]:
        groups = []
        for item in reader.items(place, expected):
            names = reader.value(WAVE, item) if reader.is_a(item, list, expected_group) else ()
            if empty and not names:
                reader.complaints.add(item, empty, "at least one job's name")
            groups.append(names)
        return tuple(groups)

    return read


CLUSTER_MAP = Kind("rebalanced_clusters", _clusters, map_to(reference("rebalanced_cluster")))
TOGETHER_LIST = Kind(
    "together",
    job_groups("a list of groups, each a list of jobs", "a list of jobs"),
    LISTS_OF_NAMES,
)
REBALANCE = Keys(
    Rebalancing,
    clusters=CLUSTER_MAP(
        "The clusters that jobs may move between: a map by name. Left out, all of the spec's."
    ),
    pinned=TEXTS("Jobs that stay where they are: names, or patterns (audit-*)."),
    paused=TEXTS("Jobs that are left alone for now: names, or patterns."),
    cordon=TEXTS("Clusters that nothing moves to. Jobs that are there may leave, or stay."),
    together=TOGETHER_LIST(
        "Jobs that move together: a list of groups, each a list of names or patterns. Jobs of one "
        "dataflow component do so anyway."
    ),
    excluded=EXCLUDED(
        "When nothing is moved: hours of the day (07:00-09:30), or a cron expression of five "
        "fields, whose minutes are excluded."
    ),
    timezone=TEXT("Whose hours these are, such as Europe/Athens."),
    warm=BOOLEAN("Whether most of a job's image is copied while the job still runs."),
    load_max=SHARE("A cluster's load after a move into it, as a part of its capacity: at most 1."),
    trigger=NUMBER("A cluster is too full above so many times the mean."),
    aim=NUMBER("And even enough below so many times the mean."),
    idle_below=AMOUNT("No cluster below this part of its capacity is too full."),
    runs=COUNT("In how many runs in a row a cluster must have been too full."),
    runs_within=DURATION("Runs that are further apart than this are none in a row (2h)."),
    gain_min=AMOUNT("A move must bring so many times what it costs."),
    relief_min=AMOUNT(
        "A move must take at least so much load off its cluster: slots or cores (0.1)."
    ),
    horizon=DURATION("For how long a move's gain is counted (1h)."),
    cool_down=DURATION("A job that was moved stays for so long (1h)."),
    remembered=DURATION(
        "A move that did not bring what it promised is not repeated for so long (24h)."
    ),
    moves_max=COUNT("Moves in one run from one cluster to another, at most."),
    age_max=DURATION("Samples that are older count for nothing (2h)."),
    scale=BOOLEAN(
        "Whether jobs of Flink get the parallelism that they need: more where they are, if they "
        "cannot keep up and that is worth a restart; more or fewer on the way of a move."
    ),
    parallelism_min=COUNT("No job is scaled to less than this (1)."),
    parallelism_max=COUNT("No job is scaled to more than this."),
)


REBALANCE_OBJECT = Kind("rebalance", object_of(REBALANCE, Rebalancing), reference("rebalance"))


# -------------------------------------------------------------------------- checking


def check_rebalancing(complaints: Complaints, root: Place, spec: Spec, jobs: list[ReadJob]) -> None:
    """Complain of what in the section (`root`) does not fit the jobs and the clusters."""
    section = spec.rebalance
    if section is None:
        return
    complaints.add_all(_flaws_of_clusters(root, spec, section))
    complaints.add_all(_flaws_of_names(root, spec, section, [read.job.name for read in jobs]))
    for read in jobs:
        complaints.add_all(_flaws_of_job(read, spec, section))
    if section.scale and spec.engine != "flink":
        message = "'scale' with jobs of Spark, whose parallelism stands in their checkpoints"
        expected = "no 'scale'; `stateshift repartition` changes it on the way to another place"
        complaints.add(_at(root, "scale"), message, expected)
    if not spec.restart:
        message = "a first deployment, with 'rebalance'"
        complaints.add(root, message, "jobs that run, or no 'rebalance'")


def _at(root: Place, name: str) -> Place:
    """Return the place of a key, however it is spelled; the section's if it is left out."""
    key = REBALANCE[name]
    return next((root / name for name in root.value if REBALANCE.find(name) is key), root)


def _flaws_of_clusters(root: Place, spec: Spec, section: Rebalancing) -> Flaws:
    at = _at(root, "clusters")
    names = [cluster.name for cluster in spec.clusters]
    for cluster in section.clusters:
        if cluster.name not in names:
            message = f"there is no cluster {cluster.name!r}{did_you_mean(cluster.name, names)}"
            yield at / cluster.name, message, f"some of {', '.join(names)}"
    if len(section.clusters or names) < 2:
        yield at, "one cluster: there is nowhere to move to", "at least two clusters"
    with_images = [cluster for cluster in section.clusters if cluster.images]
    if with_images and len(with_images) < len(section.clusters):
        message = "some clusters have a place for images, and some have none"
        yield at, message, "'images' for all of them, or for none"


def _flaws_of_names(root: Place, spec: Spec, section: Rebalancing, jobs: list[str]) -> Flaws:
    """A name with a letter missing would pin nothing, and say so much later."""
    patterns = [(_at(root, "pinned"), section.pinned), (_at(root, "paused"), section.paused)]
    patterns += [(_at(root, "together"), group) for group in section.together]
    for at, group in patterns:
        for pattern in group:
            if not any(matches(name, pattern) for name in jobs):
                message = f"no job is called {pattern!r}{did_you_mean(pattern, jobs)}"
                yield at, message, f"some of {', '.join(jobs)}, or a pattern of them"
    yield from _flaws_of_bounds(root, section)
    names = [cluster.name for cluster in section.clusters or spec.clusters]
    for name in section.cordon:
        if name not in names:
            message = f"there is no cluster {name!r} to cordon{did_you_mean(name, names)}"
            yield _at(root, "cordon"), message, f"some of {', '.join(names)}"


def _flaws_of_bounds(root: Place, section: Rebalancing) -> Flaws:
    if section.aim > section.trigger:
        message = f"'aim' is {section.aim:g}, above 'trigger', {section.trigger:g}"
        yield _at(root, "aim"), message, "what is aimed for within what triggers"
    most = section.parallelism_max
    if most is not None and most < section.parallelism_min:
        message = f"'parallelism_max' is {most}, below 'parallelism_min'"
        yield _at(root, "parallelism_max"), message, "at least 'parallelism_min'"
    if section.trigger < 1:
        message = f"'trigger' is {section.trigger:g}: some cluster is always above that"
        yield _at(root, "trigger"), message, "a number from 1 on"


def _flaws_of_job(read: ReadJob, spec: Spec, section: Rebalancing) -> Flaws:
    """A job can be found, stopped and started on any cluster, and runs on one of them."""
    for key in _TARGETS:
        if key in read.places:
            message = f"{key!r} with 'rebalance', which decides where the job goes"
            yield read.at(key), message, "no target; 'rebalance' has the clusters"
    for key in _IMAGES:
        if key in read.places:
            message = f"{key!r} with 'rebalance': the job runs, and moves as it is"
            yield read.at(key), message, f"a job without {key!r}"
    if "source_cluster" not in read.places:
        yield read.place, "'source_cluster' is missing", "where the job runs at first"
    if "submit" not in read.places:
        yield read.place, "'submit' is missing", "its start"
    if is_pattern(read.job.name) and spec.engine != "flink":
        message = f"{read.job.name!r} is a pattern: only Flink tells which jobs run there"
        yield read.at("name"), message, "each job by its name"
    names = [cluster.name for cluster in section.clusters]
    cluster = read.job.source_cluster
    if names and cluster is not None and cluster not in names:
        message = f"{cluster!r} is none of the clusters of 'rebalance'"
        yield read.at("source_cluster"), message, f"one of {', '.join(names)}"
