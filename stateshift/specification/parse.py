"""`parse_spec(text) -> Spec`: all dialects, all complaints at once. Pure: no file, no clock, no
environment is read.

    text --read_text--> Place (a plain tree) --read_jobs, read_part--> Spec --check--> Spec
                                                                   --read_dataflow--> Spec

or one SpecError. A dataflow is read only once nothing else is wrong, since a file may hold it.

The spec is ours where it has a `version`, else INFORE's: the keys are the same, the switches differ
(see `jobs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from stateshift.errors import Complaint, SpecError
from stateshift.plain import JsonObject
from stateshift.specification.checks import check
from stateshift.specification.jobs import Dialect, ReadJob, check_engine, implied_cluster, read_jobs
from stateshift.specification.keys.job import JOB
from stateshift.specification.keys.key import Engine, fold
from stateshift.specification.keys.spec import SPEC
from stateshift.specification.location import normal
from stateshift.specification.model import ClusterSpec, Spec
from stateshift.specification.parts import read_part
from stateshift.specification.place import Complaints, Place
from stateshift.specification.rebalancing import check_rebalancing, read_rebalancing
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG, read_text
from stateshift.specification.values import NamesAdded, Reader, Values, nothing_added

if TYPE_CHECKING:
    from stateshift.specification.dataflow.document import Opened

T = TypeVar("T")

WrittenDataflow = JsonObject | str

_HINT = (
    "stateshift schema > spec.schema.json   # every key and its meaning; name the file "
    'under "$schema"'
)


def parse_spec(
    text: str,
    *,
    base: str | None = None,
    environment: Mapping[str, str] | None = None,
    names_added: NamesAdded = nothing_added,
    opened: Opened | None = None,
) -> Spec:
    """Return the request that `text` makes. `base` is where relative locations start (the folder of
    the spec: a path or a URL), `environment` what `${NAME}` stands for, `names_added` what gives
    the engines and cluster kinds of other packages, `opened` what returns the text of a file that
    the spec names. Raise one SpecError that holds every complaint.
    """
    spec, dataflow = _parsed(text, base, environment, names_added)
    if dataflow is None:
        return spec
    from stateshift.specification.spec_dataflow import read_dataflow

    return replace(spec, dataflow=read_dataflow(dataflow, opened))


def parse_without_dataflow(
    text: str,
    *,
    base: str | None = None,
    environment: Mapping[str, str] | None = None,
    names_added: NamesAdded = nothing_added,
) -> Spec:
    """Return the same request without its dataflow. A running job asks for its places alone, and
    may see no other file.
    """
    return _parsed(text, base, environment, names_added)[0]


def _parsed(
    text: str, base: str | None, environment: Mapping[str, str] | None, names_added: NamesAdded
) -> tuple[Spec, WrittenDataflow | None]:
    """Return the request, and its dataflow as it stands."""
    complaints = Complaints()
    root = read_text(text, environment or {}, complaints)
    reader = Reader(complaints, normal(base) if base else None, names_added)
    places = _places(reader, root)
    values = _values(reader, places)
    dataflow = values.pop("dataflow", None)
    spec, jobs = _read(reader, root, places, values)
    check(complaints, spec, jobs)
    if "rebalance" in places:
        check_rebalancing(complaints, places["rebalance"], spec, jobs)
    _refuse(complaints)
    return spec, dataflow


def _refuse(complaints: Complaints) -> None:
    """Raise all complaints as one error, if there are any."""
    if complaints.made:
        raise SpecError(tuple(complaints.made), hint=_hint(complaints.made))


def _hint(complaints: Sequence[Complaint]) -> str:
    leaks = any(complaint.expected == WHERE_CREDENTIALS_BELONG for complaint in complaints)
    return f"keep {WHERE_CREDENTIALS_BELONG}" if leaks else _HINT


def _read(
    reader: Reader, root: Place, places: Mapping[str, Place], values: Values
) -> tuple[Spec, list[ReadJob]]:
    engine = values.get("engine") or _recognise(reader, root)
    if engine is None:  # nobody can say what the jobs' keys mean
        return Spec("spark", ()), []
    check_engine(reader, places, engine)
    dialect = _dialect(engine, places, values)
    jobs = read_jobs(reader, places["jobs"], dialect) if "jobs" in places else []
    fields = _fields(values)
    fields["engine"] = engine
    fields["jobs"] = tuple(read.job for read in jobs)
    fields["clusters"] = _with_implied(fields.get("clusters", ()), jobs)
    return Spec(**fields), jobs


def _places(reader: Reader, root: Place) -> dict[str, Place]:
    """Return the places of the keys at the top; without jobs there is nothing to do."""
    places = reader.known(root, SPEC)
    if isinstance(root.value, dict):
        reader.need(root, places, "jobs")
    return places


def _values(reader: Reader, places: Mapping[str, Place]) -> Values:
    """Return what the keys at the top say, by their names, but for the jobs."""
    values = {}
    for key, place in places.items():
        if key == "rebalance":
            values[key] = read_rebalancing(reader, place)
        elif key != "jobs":
            values[key] = read_part(reader, SPEC[key], place)
    return values


_FOR_ALL_JOBS = tuple(key.name for key in JOB.all if key.for_all)


def _for_all_jobs(named: Mapping[str, T]) -> dict[str, T]:
    """Return what belongs to the keys that count for every job, as far as they are given."""
    return {name: named[name] for name in _FOR_ALL_JOBS if named.get(name) is not None}


def _dialect(engine: Engine, places: Mapping[str, Place], values: Values) -> Dialect:
    return Dialect(
        engine=engine,
        switches_on="version" in places,
        restart=values.get("restart") is not False,
        rebalances="rebalance" in places,
        places=_for_all_jobs(places),
        defaults=_for_all_jobs(values),
    )


def _fields(values: Values) -> Values:
    """Return what the keys at the top say, by the names of the model's fields."""
    fields: Values = {}
    for key in SPEC.all:
        value = values.get(key.name)
        if key.of is Spec and value is not None:
            fields[str(key.field)] = value
    return fields | (values.get("throttle") or {})


def _with_implied(
    clusters: tuple[ClusterSpec, ...], jobs: list[ReadJob]
) -> tuple[ClusterSpec, ...]:
    """Return the clusters of the spec and, behind them, those that jobs give host and port of."""
    by_name = {cluster.name: cluster for cluster in clusters}
    for read in jobs:
        implied = implied_cluster(read.job)
        if implied is not None:
            by_name.setdefault(implied.name, implied)
    return tuple(by_name.values())


def _recognise(reader: Reader, root: Place) -> Engine | None:
    """Return the engine whose own keys the spec uses; a spec that uses both engines' has to name
    one.
    """
    used: dict[Engine, Place] = {}
    for place in _keyed(root):
        engine = _engine_of(place.key)
        if engine is not None:
            used.setdefault(engine, place)
    if len(used) < 2:
        return next(iter(used), "spark")
    spark, flink = used["spark"], used["flink"]
    message = f"keys of two engines: {spark.key!r} is Spark's, {flink.key!r} is Flink's"
    reader.complaints.add(flink, message, '"engine": "spark" or "engine": "flink" at the top')
    return None


def _engine_of(spelling: str) -> Engine | None:
    """Return the engine of whose jobs this is a key; None for a key of both."""
    key = JOB.find(spelling)
    return None if key is None else key.engine or key.hints_at


def _keyed(root: Place) -> Iterator[Place]:
    """Yield the places of all keys at the top, then of those in the jobs, as far as these have the
    right shape.
    """
    if not isinstance(root.value, dict):
        return
    top = list(_below(root))
    yield from top
    for place in top:
        if fold(place.key) == "jobs":
            yield from _keyed_in_jobs(place)


def _keyed_in_jobs(jobs: Place) -> Iterator[Place]:
    for job in _below(jobs):
        if isinstance(job.value, dict):
            yield from _below(job)


def _below(place: Place) -> Iterator[Place]:
    """Yield the places in a list or an object; none of anything else."""
    if isinstance(place.value, list):
        yield from place.items
    elif isinstance(place.value, dict):
        yield from (place / key for key in place.value)
