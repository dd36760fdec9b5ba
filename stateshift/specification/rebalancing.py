"""The section `rebalance`: between which clusters jobs may be moved, and when.

    "rebalance": {
      "clusters": {"west": {"capacity": 16, "images": "s3a://west/state/{job}/{move}"},
                   "east": {"capacity": {"slots": 16, "memory": "64g"},
                            "images": "s3a://east/state/{job}/{move}"}},
      "pinned": ["fraud"], "together": [["orders", "payments"]], "excluded": ["07:00-09:30"]}

`read_rebalancing` reads it; `check_rebalancing` holds it against the jobs and clusters of the spec.
Jobs are named by their names, or by patterns of them: `orders-*`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from stateshift.specification.excluded import EXPECTED, normal_excluded
from stateshift.specification.jobs import ReadJob
from stateshift.specification.keys.parts import WAVE
from stateshift.specification.keys.rebalancing import CAPACITY, REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.model import RebalancedCluster, Rebalancing, Spec
from stateshift.specification.place import Complaints, Place
from stateshift.specification.values import Reader, Values
from stateshift.suggestion import did_you_mean

JOB, MOVE = "{job}", "{move}"
_WILD = "*?["
_TARGETS = ("target_cluster", "remote_location", "new_savepoint_path", "remote_connection")
_IMAGES = ("existing_savepoint_paths", "job_ids", "merge_jobs", "transform", "data")


def is_pattern(name: str) -> bool:
    """Whether a job's name stands for the names of several."""
    return any(letter in name for letter in _WILD)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a job. A job that stands for several may be named by one of them."""
    return fnmatchcase(name, pattern) or (is_pattern(name) and fnmatchcase(pattern, name))


# ------------------------------------------------------------------------------------ reading


def read_rebalancing(reader: Reader, place: Place) -> Rebalancing | None:
    """Return what the section says; None, after a complaint, where it is no object."""
    known = reader.known(place, REBALANCE)
    if not isinstance(place.value, dict):
        return None
    fields: Values = {}
    for name, below in known.items():
        read = _READ.get(REBALANCE[name].kind)
        value = read(reader, below) if read else reader.value(REBALANCE[name], below)
        if value is not None:
            fields[name] = value
    return Rebalancing(**fields)


def _clusters(reader: Reader, place: Place) -> tuple[RebalancedCluster, ...]:
    if not reader.is_a(place, dict, "a map of clusters by name"):
        return ()
    read = [_cluster(reader, name, place / name) for name in place.value]
    return tuple(cluster for cluster in read if cluster is not None)


def _cluster(reader: Reader, name: str, place: Place) -> RebalancedCluster | None:
    known = reader.known(place, REBALANCED_CLUSTER)
    if not isinstance(place.value, dict):
        return None
    others = {key: below for key, below in known.items() if key != "capacity"}
    fields = reader.fields(REBALANCED_CLUSTER, others)
    if "capacity" in known:
        fields |= _capacity(reader, known["capacity"])
    if "images" in fields:
        _check_images(reader, known["images"], fields["images"])
    return RebalancedCluster(name, **fields)


def _capacity(reader: Reader, place: Place) -> Values:
    """Return what a number or an object says, by the names of the model."""
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


def _check_images(reader: Reader, place: Place, images: str) -> None:
    for part in (JOB, MOVE):
        if part not in images:
            message = f"without {part}, two images would lie at one place"
            reader.complaints.add(place, message, f"a location with {JOB} and {MOVE}")


def _together(reader: Reader, place: Place) -> tuple[tuple[str, ...], ...]:
    if not reader.is_a(place, list, "a list of groups, each a list of jobs"):
        return ()
    return tuple(_group(reader, group) for group in place.items)


def _group(reader: Reader, place: Place) -> tuple[str, ...]:
    is_list = reader.is_a(place, list, "a list of jobs")
    names: tuple[str, ...] | None = reader.value(WAVE, place) if is_list else None
    return names or ()


def _excluded(reader: Reader, place: Place) -> tuple[str, ...]:
    """Read periods: a list of them, or one. They are not divided at commas, which cron has."""
    if isinstance(place.value, str):
        return _period(reader, place)
    if not reader.is_a(place, list, "a list of periods"):
        return ()
    periods: tuple[str, ...] = ()
    for item in place.items:
        periods += _period(reader, item)
    return periods


def _period(reader: Reader, place: Place) -> tuple[str, ...]:
    period = normal_excluded(place.value) if isinstance(place.value, str) else None
    if period is None:
        reader.refuse(place, EXPECTED)
        return ()
    return (period,)


_READ: Mapping[str, Callable[[Reader, Place], object]] = {
    "rebalanced_clusters": _clusters,
    "together": _together,
    "excluded": _excluded,
}


# ------------------------------------------------------------------------------------ checking


def check_rebalancing(complaints: Complaints, root: Place, spec: Spec, jobs: list[ReadJob]) -> None:
    """Add a complaint for everything in the section that does not fit the jobs and the clusters.
    `root` is the section.
    """
    section = spec.rebalance
    if section is None:
        return
    _check_clusters(complaints, root, spec, section)
    _check_names(complaints, root, section, [read.job.name for read in jobs])
    _check_bounds(complaints, root, section)
    names = [cluster.name for cluster in section.clusters or spec.clusters]
    for name in section.cordon:
        if name not in names:
            message = f"there is no cluster {name!r} to cordon{did_you_mean(name, names)}"
            complaints.add(_below(root, "cordon"), message, f"some of {', '.join(names)}")
    names = [cluster.name for cluster in section.clusters]
    for read in jobs:
        _check_job(complaints, read, spec.engine)
        _check_place(complaints, read, names)
    if section.scale and spec.engine != "flink":
        message = "'scale' with jobs of Spark, whose parallelism stands in their checkpoints"
        expected = "no 'scale'; `stateshift repartition` changes it on the way to another place"
        complaints.add(_below(root, "scale"), message, expected)
    if not spec.restart:
        message = "a first deployment, with 'rebalance'"
        complaints.add(root, message, "jobs that run, or no 'rebalance'")


def _check_clusters(complaints: Complaints, root: Place, spec: Spec, section: Rebalancing) -> None:
    names = [cluster.name for cluster in spec.clusters]
    for cluster in section.clusters:
        if cluster.name not in names:
            message = f"there is no cluster {cluster.name!r}{did_you_mean(cluster.name, names)}"
            at = _below(root, "clusters")
            complaints.add(at / cluster.name, message, f"some of {', '.join(names)}")
    if len(section.clusters or names) < 2:
        message = "one cluster: there is nowhere to move to"
        complaints.add(_below(root, "clusters"), message, "at least two clusters")
    with_images = [cluster for cluster in section.clusters if cluster.images]
    if with_images and len(with_images) < len(section.clusters):
        message = "some clusters have a place for images, and some have none"
        complaints.add(_below(root, "clusters"), message, "'images' for all of them, or for none")


def _check_place(complaints: Complaints, read: ReadJob, names: Sequence[str]) -> None:
    """Complain of a job that runs on none of the section's clusters."""
    place = read.job.source_cluster
    if names and place is not None and place not in names:
        message = f"{place!r} is none of the clusters of 'rebalance'"
        complaints.add(read.at("source_cluster"), message, f"one of {', '.join(names)}")


def _check_names(
    complaints: Complaints, root: Place, section: Rebalancing, jobs: Sequence[str]
) -> None:
    """A name with a letter missing would pin nothing, and say so much later."""
    for key in ("pinned", "paused"):
        _check_patterns(complaints, _below(root, key), getattr(section, key), jobs)
    for group in section.together:
        _check_patterns(complaints, _below(root, "together"), group, jobs)


def _check_patterns(
    complaints: Complaints, place: Place, patterns: Iterable[str], jobs: Collection[str]
) -> None:
    for pattern in patterns:
        if not any(matches(name, pattern) for name in jobs):
            message = f"no job is called {pattern!r}{did_you_mean(pattern, jobs)}"
            complaints.add(place, message, f"some of {', '.join(jobs)}, or a pattern of them")


def _check_bounds(complaints: Complaints, root: Place, section: Rebalancing) -> None:
    if section.aim > section.trigger:
        message = f"'aim' is {section.aim:g}, above 'trigger', {section.trigger:g}"
        complaints.add(_below(root, "aim"), message, "what is aimed for within what triggers")
    most = section.parallelism_max
    if most is not None and most < section.parallelism_min:
        message = f"'parallelism_max' is {most}, below 'parallelism_min'"
        complaints.add(_below(root, "parallelism_max"), message, "at least 'parallelism_min'")
    if section.trigger < 1:
        message = f"'trigger' is {section.trigger:g}: some cluster is always above that"
        complaints.add(_below(root, "trigger"), message, "a number from 1 on")


def _below(root: Place, name: str) -> Place:
    """Return the place of a key of the section, however it is spelled; the section where it is left
    out.
    """
    for spelling in root.value:
        key = REBALANCE.find(spelling)
        if key is not None and key.name == name:
            place: Place = root / spelling
            return place
    return root


def _check_job(complaints: Complaints, read: ReadJob, engine: str) -> None:
    """Check that a job can be found, stopped and started on any cluster."""
    for key in _TARGETS:
        if key in read.places:
            message = f"{key!r} with 'rebalance', which decides where the job goes"
            complaints.add(read.at(key), message, "no target; 'rebalance' has the clusters")
    for key in _IMAGES:
        if key in read.places:
            message = f"{key!r} with 'rebalance': the job runs, and moves as it is"
            complaints.add(read.at(key), message, f"a job without {key!r}")
    for key in ("source_cluster", "submit"):
        if key not in read.places:
            expected = "where the job runs at first" if key == "source_cluster" else "its start"
            complaints.add(read.place, f"{key!r} is missing", expected)
    if is_pattern(read.job.name) and engine != "flink":
        message = f"{read.job.name!r} is a pattern: only Flink tells which jobs run there"
        complaints.add(read.at("name"), message, "each job by its name")
