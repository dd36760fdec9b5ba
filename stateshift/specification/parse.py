"""`parse_spec(text) -> Spec`: all dialects, all complaints at once. Pure: no file, no clock, no
environment is read.

    text --read_text--> Place (a plain tree) --read_jobs, Reader--> Spec --check--> Spec
                                                                   --read_dataflow--> Spec

or one SpecError. A dataflow is read only once nothing else is wrong, since a file may hold it.

The spec is ours where it has a `version`, else INFORE's: the keys are the same, the switches differ
(see `jobs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from stateshift.errors import Complaint, SpecError
from stateshift.plain import JsonObject
from stateshift.specification.changes import TRANSFORMS
from stateshift.specification.checks import check
from stateshift.specification.grammars import fold
from stateshift.specification.job_keys import JOB
from stateshift.specification.jobs import Dialect, ReadJob, check_engine, implied_cluster, read_jobs
from stateshift.specification.key import Engine, Keys, NamesAdded, Reader, Values, nothing_added
from stateshift.specification.location import normal
from stateshift.specification.model import Spec
from stateshift.specification.place import Complaints, Place
from stateshift.specification.rebalancing import check_rebalancing
from stateshift.specification.spec_keys import OBJECTS, SPEC
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG, read_text

if TYPE_CHECKING:
    from stateshift.specification.dataflow.document import Opened
    from stateshift.specification.written import Written

T = TypeVar("T")

_QUOTED = re.compile(r"'([a-z_]+)'")
_IN_A_JOB = re.compile(r"/jobs/[0-9]+(/[^/]*)?")

WrittenDataflow = JsonObject | str

_HINT = (
    "stateshift schema > spec.schema.json   # every key and its meaning; name the file "
    'under "$schema"'
)


def parse_spec(
    text: str | Written,
    *,
    base: str | None = None,
    environment: Mapping[str, str] | None = None,
    names_added: NamesAdded = nothing_added,
    opened: Opened | None = None,
) -> Spec:
    """Return the request that `text` makes: JSON, or what `read_yaml` returns. `base` is where
    relative locations start (the folder of the spec: a path or a URL), `environment` the values of
    `${NAME}`. `names_added` returns the engines and cluster kinds of other packages, `opened` the
    text of a file that the spec names.
    Raise one SpecError that holds every complaint.
    """
    spec, dataflow = _parsed(text, base, environment, names_added)
    if dataflow is None:
        return spec
    from stateshift.specification.dataflow.parse import read_dataflow

    return replace(spec, dataflow=read_dataflow(dataflow, opened))


def parse_without_dataflow(
    text: str | Written,
    *,
    base: str | None = None,
    environment: Mapping[str, str] | None = None,
    names_added: NamesAdded = nothing_added,
) -> Spec:
    """Return the request without its dataflow: a running job may see no other file."""
    return _parsed(text, base, environment, names_added)[0]


def _parsed(
    text: str | Written,
    base: str | None,
    environment: Mapping[str, str] | None,
    names_added: NamesAdded,
) -> tuple[Spec, WrittenDataflow | None]:
    """Return the request, and its dataflow as it stands."""
    complaints = Complaints()
    root = read_text(text, environment or {}, complaints)
    start = normal(base) if base else None
    storages = None if isinstance(text, str) else text.storages
    reader = Reader(complaints, start, names_added, meant, storages)
    places = reader.known(root, SPEC)
    if isinstance(root.value, dict):
        reader.need(root, places, "jobs")
    values = {key: reader.value(SPEC[key], at) for key, at in places.items() if key != "jobs"}
    dataflow = values.pop("dataflow", None)
    spec, jobs = _read(reader, root, places, values)
    check(complaints, spec, jobs)
    if "rebalance" in places:
        check_rebalancing(complaints, places["rebalance"], spec, jobs)
    if complaints.made:
        leaks = any(each.expected == WHERE_CREDENTIALS_BELONG for each in complaints.made)
        hint = f"keep {WHERE_CREDENTIALS_BELONG}" if leaks else _way_out(complaints.made)
        raise SpecError(tuple(complaints.made), hint=hint)
    return spec, dataflow


def _way_out(complaints: Sequence[Complaint]) -> str:
    """Return the sentence of the key that a single mistake is about; else where all keys are."""
    first = complaints[0]
    keys = JOB if _IN_A_JOB.fullmatch(first.pointer) else SPEC
    is_deeper = keys is SPEC and first.pointer.count("/") > 1
    if len(complaints) == 1 and not is_deeper:
        # The last key that the message names is the one that lacks, or is meant.
        names = [first.pointer.rpartition("/")[2], *_QUOTED.findall(first.message)]
        for name in reversed(names):
            key = keys.find(name)
            if key is not None:
                return f'"{key.name}": {key.about}'
    return _HINT


def _read(
    reader: Reader, root: Place, places: Mapping[str, Place], values: Values
) -> tuple[Spec, list[ReadJob]]:
    engine = values.get("engine") or _recognise(reader, root)
    if engine is None:  # nobody can say what the jobs' keys mean
        return Spec("spark", ()), []
    check_engine(reader, SPEC, places, engine)
    dialect = Dialect(
        engine=engine,
        switches_on="version" in places,
        restart=values.get("restart") is not False,
        rebalances="rebalance" in places,
        places=_for_all_jobs(places),
        defaults=_for_all_jobs(values),
    )
    jobs = read_jobs(reader, places["jobs"], dialect) if "jobs" in places else []
    fields = SPEC.fields_of(Spec, values) | (values.get("throttle") or {})
    fields["engine"] = engine
    fields["jobs"] = tuple(read.job for read in jobs)
    clusters = {cluster.name: cluster for cluster in fields.get("clusters", ())}
    for implied in filter(None, map(implied_cluster, fields["jobs"])):
        clusters.setdefault(implied.name, implied)
    fields["clusters"] = tuple(clusters.values())
    return Spec(**fields), jobs


_FOR_ALL_JOBS = tuple(key.name for key in JOB.all if key.for_all)


def _for_all_jobs(named: Mapping[str, T]) -> dict[str, T]:
    """Return the values of keys that count for every job, as far as they are given."""
    return {name: named[name] for name in _FOR_ALL_JOBS if named.get(name) is not None}


def _recognise(reader: Reader, root: Place) -> Engine | None:
    """Return the engine whose own keys the spec uses; with both engines' it has to name one."""
    is_object = isinstance(root.value, dict)
    keyed = root.below if is_object else []
    for jobs in root.below if is_object else ():
        if fold(jobs.key) == "jobs":
            for job in jobs.below:
                keyed += job.below if isinstance(job.value, dict) else ()
    used: dict[Engine, Place] = {}
    for place in keyed:
        key = JOB.find(place.key)
        engine = None if key is None else key.engine or key.hints_at
        if engine is not None:
            used.setdefault(engine, place)
    if len(used) < 2:
        return next(iter(used), "spark")
    spark, flink = used["spark"], used["flink"]
    message = f"keys of two engines: {spark.key!r} is Spark's, {flink.key!r} is Flink's"
    reader.complaints.add(flink, message, '"engine": "spark" or "engine": "flink" at the top')
    return None


# -------------------------------------------------------------------------- misplaced keys

IN_A_JOB = "inside a job"
AT_THE_TOP = "at the top, beside 'jobs'"

# A spelling with more homes than these says nothing of what was meant, such as `name`.
HOMES_MAX = 2

_PARTS: Mapping[str, Keys] = {where: keys for keys, where in OBJECTS.values()}
_CHANGES: Mapping[str, Keys] = {
    f'{IN_A_JOB}, as "transform": [{{"kind": "{kind}", …}}]': keys
    for kind, keys in TRANSFORMS.items()
}


def meant(here: Keys, spelling: str) -> str:
    """Return the hint for a spelling that is no key `here`: where it belongs, or what is near.

        meant(JOB, "waves")   ", which belongs at the top, beside 'jobs'"
        meant(JOB, "rewind")  ', which belongs inside a job, as "transform": [{"kind": "rewind"…}]'
        meant(SPEC, "fork")   ', which belongs inside a job, as "mode": "fork"'
        meant(JOB, "nmae")    the key of a job that is spelled alike

    A key of the spec or of a job comes first, then a change or another value that is one of a few.
    A smaller part that has such a key comes last: many of its keys are near misses of keys that are
    meant to stand here.
    """
    parts = [where for where, keys in {**_PARTS, **_CHANGES}.items() if keys.find(spelling)]
    # A job's key that is one of several other parts says nothing below a job.
    is_common = here is not SPEC and len(parts) >= HOMES_MAX
    if here is not JOB and JOB.find(spelling) and not is_common:
        return f", which belongs {IN_A_JOB}"
    if here is not SPEC and SPEC.find(spelling):
        return f", which belongs {AT_THE_TOP}"
    near = here.did_you_mean(spelling)
    folded = fold(spelling)
    homes = [
        where for kind, where in zip(TRANSFORMS, _CHANGES, strict=True) if fold(kind) == folded
    ]
    for where, keys in {IN_A_JOB: JOB, AT_THE_TOP: SPEC, **_PARTS}.items():
        for key in keys.all:
            is_a_jobs = keys is SPEC and key.for_all
            for choice in () if is_a_jobs else key.choices:
                if fold(choice) == folded:
                    homes.append(f'{where}, as "{key.name}": "{choice}"')
    homes = list(dict.fromkeys(homes))
    is_part_of_near = fold(spelling) in fold(near)  # `location` of remote_location
    if not 0 < len(homes) <= HOMES_MAX and not is_part_of_near:
        homes = parts
    if not 0 < len(homes) <= HOMES_MAX:
        return near
    return f", which belongs {', or '.join(homes)}"
