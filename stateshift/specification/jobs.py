"""One job as a spec spells it, in the dialect and for the engine the whole spec is in.

Switches (IS-4): without `version` the spec is INFORE's, and merge jobs or a remote connection count
only where `merge` or `remote` is true. With `version` they count where they are given, unless the
switch is false. A connection that is switched on has to be there. A remote location is on where it
is given (IS-5).

Flink's jobs (IF-1): with existing savepoints the first is the source; else savepoints of the job
ids are taken, and the source is where Flink puts them. `host` and `port` without a `source_cluster`
are the cluster on which they run. `checkpoint_location` and `remote_location` name source and
target here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stateshift.specification.job_keys import JOB
from stateshift.specification.key import Engine, Keys, Reader, Values
from stateshift.specification.model import ClusterSpec, FlinkJob, JobSpec
from stateshift.specification.place import Flaws, Place
from stateshift.specification.transform import Change, Drop, Merge, Rename, Repair

METADATA = "_metadata"
_SWITCHES = (
    ("merge", "merge_jobs", "the directories to merge, or false"),
    ("remote", "remote_connection", "a connection host:port, or false"),
)
_NAMES_OF_SOURCE = frozenset(
    ("checkpoint_location", "existing_savepoint_paths", "target_directory", "checkpoint_dir")
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The properties of all jobs; `rebalances`: they are found by name when they are moved."""

    engine: Engine
    switches_on: bool
    restart: bool
    rebalances: bool
    places: Mapping[str, Place]
    defaults: Values


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The place of a job, and of each of its keys (its own ones, and those for all jobs)."""

    place: Place
    places: Mapping[str, Place]

    def at(self, *names: str) -> Place:
        """Return the first of these keys that is there, else the job."""
        return next((self.places[name] for name in names if name in self.places), self.place)

    def each(self, name: str, values: tuple[object, ...]) -> list[Place]:
        """Return the place of each value of a list or map; the whole's if some are unread."""
        place = self.at(name)
        read_as_one = [place] * len(values)
        if not isinstance(place.value, list | dict) or len(place.value) != len(values):
            return read_as_one
        keys = place.value if isinstance(place.value, dict) else range(len(values))
        return [place / key for key in keys]


@dataclass(frozen=True, slots=True)
class ReadJob(JobPlaces):
    """A job that was read, and its places."""

    job: JobSpec


def read_jobs(reader: Reader, place: Place, dialect: Dialect) -> list[ReadJob]:
    """Return the jobs of a spec that could be read."""
    jobs = [_job(reader, item, name, dialect) for name, item in reader.named(place, "jobs")]
    if isinstance(place.value, list | dict) and not jobs:
        reader.complaints.add(place, "no job", "at least one job")
    return [job for job in jobs if job is not None]


def _job(reader: Reader, place: Place, given: str | None, dialect: Dialect) -> ReadJob | None:
    own = reader.known(place, JOB)
    if not isinstance(place.value, dict):
        return None
    values = dict(dialect.defaults)
    for name, below in own.items():
        check_engine(reader, JOB, {name: below}, dialect.engine)
        value = reader.value(JOB[name], below) if name != "name" else None
        if value is not None:
            values[name] = value
    values["name"] = reader.name_of(place, given, own, JOB["name"]) or ""
    at = JobPlaces(place, {**dialect.places, **own})
    read_as = _flink_job if dialect.engine == "flink" else _spark_job
    return ReadJob(at.place, at.places, read_as(reader, at, values, dialect))


def check_engine(reader: Reader, keys: Keys, places: Mapping[str, Place], engine: Engine) -> None:
    """Complain of keys that only the other engine knows."""
    for name, place in places.items():
        other = keys[name].engine
        if other not in (None, engine):
            message = f"{place.key!r} is a key of {str(other).capitalize()}'s jobs"
            reader.complaints.add(place, message, f"a key of {engine.capitalize()}'s jobs")


def _spark_job(reader: Reader, at: JobPlaces, values: Values, dialect: Dialect) -> JobSpec:
    reader.need(at.place, at.places, "checkpoint_location")
    for switch, key, expected in _SWITCHES:
        if values.get(switch) and key not in at.places:
            message = f"{switch!r} is true without {key!r}"
            reader.complaints.add(at.places[switch], message, expected)
        if not values.get(switch, dialect.switches_on):
            values.pop(key, None)
    return _job_spec(values)


def _flink_job(reader: Reader, at: JobPlaces, values: Values, dialect: Dialect) -> JobSpec:
    _name_folders(values)
    flink = JOB.fields_of(FlinkJob, values)
    existing: tuple[str, ...] = flink.get("existing_savepoints", ())
    source = values.get("checkpoint_location")
    is_running = dialect.rebalances or flink.get("job_ids")
    if flink.get("from_existing_savepoint") is False:
        existing = ()
    elif not existing and source is not None and dialect.restart and not is_running:
        existing = (source,)  # a source that nothing else explains is a savepoint
    if dialect.restart and not existing and not dialect.rebalances:
        reader.complaints.add_all(_flaws_of_taking(at, flink.get("from_existing_savepoint")))
    reader.complaints.add_all(_flaws_of_ends(at, values))
    flink["existing_savepoints"] = existing
    flink["from_existing_savepoint"] = bool(existing)
    if "host" in flink and "port" in flink:
        values.setdefault("source_cluster", rest_name(flink["host"], flink["port"]))
    values.setdefault("remote_location", values.get("new_savepoint_path"))
    ends = [values.get("checkpoint_location"), *existing]
    ends += [values.get("target_directory"), values.get("checkpoint_dir")]
    values["checkpoint_location"] = next(filter(None, ends), None)
    return _job_spec(values, FlinkJob(**flink))


def _flaws_of_taking(at: JobPlaces, switch: bool | None) -> Flaws:
    """Yield the reasons for which no savepoints can be taken of the job."""
    names_savepoints = "existing_savepoint_paths" in at.places
    if switch and not names_savepoints:
        message = "'from_existing_savepoint' is true without 'existing_savepoint_paths'"
        yield at.place, message, "the savepoints to start from, or false"
    elif not names_savepoints and "job_ids" not in at.places:
        message = "neither 'existing_savepoint_paths' nor 'job_ids'"
        yield at.place, message, "savepoints, or jobs of which they are taken"
    elif "job_ids" in at.places and not {"host", "source_cluster"} & at.places.keys():
        message = "'job_ids' without 'host' and 'port', or 'source_cluster'"
        yield at.places["job_ids"], message, "where the jobs run"


def _flaws_of_ends(at: JobPlaces, values: Values) -> Flaws:
    for given, other in (("host", "port"), ("port", "host")):
        if given in at.places and other not in at.places:
            message = f"{given!r} without {other!r}"
            yield at.places[given], message, "both of them, or neither"
    new, target = values.get("new_savepoint_path"), values.get("remote_location")
    if new and target and new != target:
        message = "'remote_location' and 'new_savepoint_path' differ"
        yield at.places["remote_location"], message, "one of them"
    if _NAMES_OF_SOURCE.isdisjoint(at.places):
        expected = "where Flink puts the savepoint it is asked for"
        yield at.place, "'target_directory' is missing", expected


def _name_folders(values: Values) -> None:
    """A savepoint may be named by its `_metadata`, as for Flink itself: its folder is meant."""
    for name in ("checkpoint_location", "remote_location", "new_savepoint_path"):
        if name in values:
            values[name] = folder_meant(values[name])
    for name in ("existing_savepoint_paths", "merge_jobs"):
        if name in values:
            values[name] = tuple(map(folder_meant, values[name]))
    changes: list[Change] = []
    for change in values.get("transform", ()):
        match change:
            case Rename() | Drop() if change.of:
                change = replace(change, of=folder_meant(change.of))
            case Merge():
                change = replace(change, locations=tuple(map(folder_meant, change.locations)))
            case Repair():
                change = replace(change, files=tuple(map(folder_meant, change.files)))
        changes.append(change)
    values["transform"] = tuple(changes)


def folder_meant(location: str) -> str:
    """Return the folder of a savepoint that is named by its `_metadata`."""
    plain = location.rstrip("/")
    return plain.removesuffix(f"/{METADATA}") if plain.endswith(f"/{METADATA}") else location


def rest_name(host: str, port: int) -> str:
    """Return the name of a cluster of which a job names host and port, and nothing else."""
    return f"{host}:{port}"


def implied_cluster(job: JobSpec) -> ClusterSpec | None:
    """Return the cluster whose host and port the job names."""
    flink = job.flink
    if flink is None or not flink.host or not flink.port:
        return None
    name = rest_name(flink.host, flink.port)
    if job.source_cluster != name:
        return None
    return ClusterSpec(name, "flink_rest", {"url": f"http://{name}"})


def _job_spec(values: Values, flink: FlinkJob | None = None) -> JobSpec:
    """Return the job of the keys that INFORE's and ours have in common, by the model's names."""
    fields: Values = {"source": "", "flink": flink, **JOB.fields_of(JobSpec, values)}
    ends = fields.pop("verify", {})
    fields |= ends if isinstance(ends, Mapping) else {"verify": ends}
    return JobSpec(**fields)
