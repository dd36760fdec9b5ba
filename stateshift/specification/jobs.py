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
from dataclasses import dataclass

from stateshift.plain import JsonObject
from stateshift.specification.job_keys import JOB
from stateshift.specification.key import Engine, Keys, Reader, Values
from stateshift.specification.model import ClusterSpec, FlinkJob, JobSpec
from stateshift.specification.parts import name_of, named
from stateshift.specification.place import Place

METADATA = "_metadata"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the spec as a whole says of its jobs. `defaults` are the values of keys that stand
    beside `jobs`. `rebalances`: the jobs are found by their names when they are moved.
    """

    engine: Engine
    switches_on: bool
    restart: bool
    rebalances: bool
    places: Mapping[str, Place]
    defaults: Values


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A job, where it stands, and where each of its keys does (its own ones, and those for all
    jobs).
    """

    job: JobSpec
    place: Place
    places: Mapping[str, Place]

    def at(self, *names: str) -> Place:
        """Return the first of these keys that is there, else the job."""
        return next((self.places[name] for name in names if name in self.places), self.place)

    def each(self, name: str, values: tuple[object, ...]) -> list[Place]:
        """Return the places of what was read from a list or a map: each its own, unless some of it
        could not be read.
        """
        place = self.at(name)
        read_as_one = [place] * len(values)
        if not isinstance(place.value, list | dict) or len(place.value) != len(values):
            return read_as_one
        keys = place.value if isinstance(place.value, dict) else range(len(values))
        return [place / key for key in keys]


def read_jobs(reader: Reader, place: Place, dialect: Dialect) -> list[ReadJob]:
    """Return the jobs of a spec that could be read."""
    jobs = [_job(reader, item, name, dialect) for name, item in named(reader, place, "jobs")]
    if isinstance(place.value, list | dict) and not jobs:
        reader.complaints.add(place, "no job", "at least one job")
    return [job for job in jobs if job is not None]


def _job(reader: Reader, place: Place, given: str | None, dialect: Dialect) -> ReadJob | None:
    own = reader.known(place, JOB)
    if not isinstance(place.value, dict):
        return None
    values = {**dialect.defaults, **_own_values(reader, own, dialect.engine)}
    name = name_of(reader, place, given, own, JOB["name"])
    values["name"] = name or ""
    places = {**dialect.places, **own}
    read_as = _spark_job
    if dialect.engine == "flink":
        read_as = _flink_job
    job = read_as(reader, place, places, values, dialect)
    return ReadJob(job, place, places)


def _own_values(reader: Reader, own: Mapping[str, Place], engine: Engine) -> Values:
    """Return the values of the keys of a job itself, but for its name."""
    values = {}
    for name, at in own.items():
        check_engine(reader, JOB, {name: at}, engine)
        value = reader.value(JOB[name], at) if name != "name" else None
        if value is not None:
            values[name] = value
    return values


def check_engine(reader: Reader, keys: Keys, places: Mapping[str, Place], engine: Engine) -> None:
    """Complain of keys that only the other engine knows."""
    for name, place in places.items():
        other = keys[name].engine
        if other not in (None, engine):
            message = f"{place.key!r} is a key of {str(other).capitalize()}'s jobs"
            reader.complaints.add(place, message, f"a key of {engine.capitalize()}'s jobs")


def _spark_job(
    reader: Reader, place: Place, places: Mapping[str, Place], values: Values, dialect: Dialect
) -> JobSpec:
    reader.need(place, places, "checkpoint_location")
    for switch, key, expected in _SWITCHES:
        if values.get(switch) and key not in places:
            reader.complaints.add(places[switch], f"{switch!r} is true without {key!r}", expected)
        if not values.get(switch, dialect.switches_on):
            values.pop(key, None)
    return _job_spec(values)


_SWITCHES = (
    ("merge", "merge_jobs", "the directories to merge, or false"),
    ("remote", "remote_connection", "a connection host:port, or false"),
)


def _flink_job(
    reader: Reader, place: Place, places: Mapping[str, Place], values: Values, dialect: Dialect
) -> JobSpec:
    _name_folders(values)
    flink = _fields_of(FlinkJob, values)
    switch = flink.get("from_existing_savepoint")
    existing = _existing_savepoints(flink, values.get("checkpoint_location"), dialect)
    flink["existing_savepoints"] = existing
    flink["from_existing_savepoint"] = bool(existing)

    if dialect.restart and not existing and not dialect.rebalances:
        _check_savepoints_can_be_taken(reader, place, places, switch)
    _check_host_and_port(reader, places)
    _name_cluster(values, flink)
    _set_ends(reader, place, places, values, existing)
    return _job_spec(values, FlinkJob(**flink))


def _existing_savepoints(flink: Values, source: str | None, dialect: Dialect) -> tuple[str, ...]:
    """Return the savepoints to start from; a source that nothing else explains is one."""
    if flink.get("from_existing_savepoint") is False:
        return ()
    named: tuple[str, ...] = flink.get("existing_savepoints", ())
    is_running = dialect.rebalances or flink.get("job_ids")
    if named or source is None or not dialect.restart or is_running:
        return named
    return (source,)


def _check_host_and_port(reader: Reader, places: Mapping[str, Place]) -> None:
    for given, other in (("host", "port"), ("port", "host")):
        if given in places and other not in places:
            message = f"{given!r} without {other!r}"
            reader.complaints.add(places[given], message, "both of them, or neither")


def _name_cluster(values: Values, flink: Values) -> None:
    """Name the cluster of a job that gives host and port, and no other cluster."""
    if "host" in flink and "port" in flink and "source_cluster" not in values:
        values["source_cluster"] = rest_name(flink["host"], flink["port"])


def _name_folders(values: Values) -> None:
    """A savepoint may be named by its `_metadata`, as for Flink itself: its folder is meant."""
    for name in ("checkpoint_location", "remote_location", "new_savepoint_path"):
        if isinstance(values.get(name), str):
            values[name] = folder_meant(values[name])
    for name in ("existing_savepoint_paths", "merge_jobs"):
        if isinstance(values.get(name), tuple):
            values[name] = tuple(map(folder_meant, values[name]))
    values["transform"] = tuple(_with_folders(change) for change in values.get("transform") or ())


def _with_folders(change: JsonObject) -> Values:
    named = dict(change)
    for name in ("of", "locations", "files"):
        if name in named:
            named[name] = _folders_meant(named[name])
    return named


def _folders_meant(value: object) -> object:
    """Return a location, or several of them, by the folders that are meant."""
    if isinstance(value, str):
        return folder_meant(value)
    if isinstance(value, list | tuple):
        return type(value)(map(folder_meant, value))
    return value


def folder_meant(location: str) -> str:
    """Return the folder of a savepoint that is named by its `_metadata`."""
    plain = location.rstrip("/")
    return plain.removesuffix(f"/{METADATA}") if plain.endswith(f"/{METADATA}") else location


def rest_name(host: str, port: int) -> str:
    """Return what a cluster is called of which a job names host and port, and nothing else."""
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


def _check_savepoints_can_be_taken(
    reader: Reader, place: Place, places: Mapping[str, Place], switch: bool | None
) -> None:
    if not _says_what_is_taken(reader, place, places, switch):
        return
    if "job_ids" in places and not {"host", "source_cluster"} & places.keys():
        message = "'job_ids' without 'host' and 'port', or 'source_cluster'"
        reader.complaints.add(places["job_ids"], message, "where the jobs run")


def _says_what_is_taken(
    reader: Reader, place: Place, places: Mapping[str, Place], switch: bool | None
) -> bool:
    """Whether savepoints are named, or jobs of which they are taken."""
    if "existing_savepoint_paths" in places:
        return True
    if switch:
        message = "'from_existing_savepoint' is true without 'existing_savepoint_paths'"
        reader.complaints.add(place, message, "the savepoints to start from, or false")
        return False
    if "job_ids" not in places:
        message = "neither 'existing_savepoint_paths' nor 'job_ids'"
        reader.complaints.add(place, message, "savepoints, or jobs of which they are taken")
        return False
    return True


def _set_ends(
    reader: Reader,
    place: Place,
    places: Mapping[str, Place],
    values: Values,
    existing: tuple[str, ...],
) -> None:
    """Set source and target, from Flink's own keys where the general ones are not there."""
    new, target = values.get("new_savepoint_path"), values.get("remote_location")
    _check_one_target(reader, places, new, target)
    values["remote_location"] = target or new
    ends = [values.get("checkpoint_location"), *existing]
    ends += [values.get("target_directory"), values.get("checkpoint_dir")]
    values["checkpoint_location"] = next(filter(None, ends), None)
    if not _NAMES_OF_SOURCE & set(places):
        expected = "where Flink puts the savepoint it is asked for"
        reader.complaints.add(place, "'target_directory' is missing", expected)


def _check_one_target(
    reader: Reader, places: Mapping[str, Place], new: str | None, target: str | None
) -> None:
    """Complain of two keys that name different targets."""
    if new and target and new != target:
        message = "'remote_location' and 'new_savepoint_path' differ"
        reader.complaints.add(places["remote_location"], message, "one of them")


_NAMES_OF_SOURCE = {
    "checkpoint_location",
    "existing_savepoint_paths",
    "target_directory",
    "checkpoint_dir",
}


def _job_spec(values: Values, flink: FlinkJob | None = None) -> JobSpec:
    """Return the job of the keys that INFORE's and ours have in common, by the model's names."""
    fields: Values = {"source": "", "flink": flink}
    fields |= _fields_of(JobSpec, values)
    ends = fields.pop("verify", {})
    fields |= ends if isinstance(ends, Mapping) else {"verify": ends}
    return JobSpec(**fields)


def _fields_of(model: type, values: Values) -> Values:
    """Return the values of a model's keys that were given, by its field names."""
    fields = {}
    for key in JOB.all:
        value = values.get(key.name)
        if key.of is model and key.field and value is not None:
            fields[key.field] = value
    return fields
