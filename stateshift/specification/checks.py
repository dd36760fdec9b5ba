"""What has to hold between the parts of a spec. Every check sees all jobs and adds its complaints;
none stops another.

Nothing here looks at bytes: where hashes are made it shows whether two names have the same one, and
a survey says what lies at a location.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import get_args

from stateshift.plain import JsonObject
from stateshift.specification.jobs import ReadJob
from stateshift.specification.location import relation, scheme
from stateshift.specification.model import (
    WAIVERS,
    DataSpec,
    FlinkJob,
    JobSpec,
    Keep,
    OperatorSpec,
    Spec,
)
from stateshift.specification.place import Complaints, Place
from stateshift.specification.warm import NEVER
from stateshift.specification.waves import share
from stateshift.suggestion import did_you_mean

_TARGET_KEYS = ("remote_location", "new_savepoint_path")
_RELATION = {"same": "is", "inside": "lies inside", "around": "holds"}


def check(complaints: Complaints, spec: Spec, jobs: list[ReadJob]) -> None:
    """Add a complaint for everything that does not fit together."""
    _check_names(complaints, jobs)
    _check_operators(complaints, jobs)
    _check_targets(complaints, jobs)
    _check_shared(complaints, jobs)
    _check_waves(complaints, spec, jobs)
    for read in jobs:
        _check_clusters(complaints, spec, read)
        _check_ends(complaints, read)
        _check_merges(complaints, read)
        _check_united(complaints, read)
        _check_data(complaints, read)
        _check_fork(complaints, read)
        _check_sync(complaints, read)
        _check_warm(complaints, read)
        _check_prepared(complaints, read)
        _check_changes(complaints, read)
        _check_waivers(complaints, read)
        _check_kept(complaints, read)


def _check_names(complaints: Complaints, jobs: list[ReadJob]) -> None:
    named = [(read.job.name, read.at("name")) for read in jobs if read.job.name]
    for name, place, first in _repeated(named):
        message = f"another job is called {name!r} (at {first.pointer})"
        complaints.add(place, message, "a name of its own")


@dataclass(frozen=True)
class _PlacedOperator:
    """An operator, where the spec names it, and the source of its job."""

    operator: OperatorSpec
    place: Place
    source: str


def _placed_operators(jobs: list[ReadJob]) -> Iterator[_PlacedOperator]:
    for read in jobs:
        places = read.each("operators", read.job.operators)
        for operator, place in zip(read.job.operators, places, strict=True):
            yield _PlacedOperator(operator, place, read.job.source)


def _check_operators(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Names are UIDs, unique in the workflow (IS-7); a directory holds one operator."""
    placed = list(_placed_operators(jobs))
    named = [(each.operator.name, each.place) for each in placed]
    for name, place, first in _repeated(named):
        message = f"{name!r} names another operator, too (at {first.pointer})"
        complaints.add(place, message, "a name of its own")
    for directory, place, first in _repeated(_adopted(placed)):
        message = f"{directory!r} holds another operator, too (at {first.pointer})"
        complaints.add(place, message, "a directory for each")


def _adopted(placed: Iterable[_PlacedOperator]) -> Iterator[tuple[str, Place]]:
    """Yield the directories that operators take over, each with the place that says so."""
    for each in placed:
        if each.operator.directory:
            yield f"{each.source}/{each.operator.directory}", each.place


def _check_targets(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Two images at one place would be one broken image."""
    moving = [read for read in jobs if read.job.target]
    for read, earlier in _pairs(moving):
        _check_target_pair(complaints, read, earlier)


def _pairs(jobs: list[ReadJob]) -> Iterator[tuple[ReadJob, ReadJob]]:
    """Yield every job with each that stands before it."""
    for index, read in enumerate(jobs):
        for earlier in jobs[:index]:
            yield read, earlier


def _check_target_pair(complaints: Complaints, read: ReadJob, earlier: ReadJob) -> None:
    lies = relation(read.job.target or "", earlier.job.target or "")
    if lies == "apart":
        return
    message = (
        f"the target of {read.job.name!r} {_RELATION[lies]} the target of {earlier.job.name!r}"
    )
    complaints.add(read.at(*_TARGET_KEYS), message, "a place of its own")


def _check_shared(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Jobs that divide a workflow: each says which operators are its own, and takes them
    elsewhere.
    """
    for read in jobs:
        others = [other for other in jobs if other is not read]
        sharing = [other for other in others if share(read.job, other.job)]
        if sharing:
            fact = f"{read.job.source!r} is the source of {sharing[0].job.name!r}, too"
            _check_sharing(complaints, read, fact)


def _check_sharing(complaints: Complaints, read: ReadJob, fact: str) -> None:
    at = read.at("checkpoint_location", "existing_savepoint_paths")
    if not read.job.operators:
        message = f"{fact}, and this job names no operators"
        complaints.add(at, message, 'its own operators, or "mode": "fork"')
    if not read.job.target:
        message = f"{fact}, and this job stays there"
        complaints.add(at, message, "'remote_location': where its part goes")
    if read.job.merge_locations:
        message = f"{fact}: a merge would be divided"
        complaints.add(read.at("merge_jobs"), message, "two runs: merge first")


def _check_waves(complaints: Complaints, spec: Spec, jobs: list[ReadJob]) -> None:
    """Every job moves in exactly one wave, and those that share a source in one."""
    if not spec.waves:
        return
    if spec.strategy:
        message = "a strategy beside waves: both say what moves together"
        complaints.add(Place(spec.strategy, "/strategy"), message, "one of them")
    at = Place(spec.waves, "/waves")
    _check_wave_names(complaints, at, spec, jobs)
    _check_waves_of_sharing(complaints, at, spec, jobs)


def _check_wave_names(complaints: Complaints, at: Place, spec: Spec, jobs: list[ReadJob]) -> None:
    names = [read.job.name for read in jobs]
    times = Counter(chain.from_iterable(spec.waves))
    _check_names_in_waves(complaints, at, times, names)
    for name in names:
        if name and name not in times:
            complaints.add(at, f"{name!r} is in no wave", "every job once")


def _check_names_in_waves(
    complaints: Complaints, at: Place, times: Counter[str], names: list[str]
) -> None:
    """Complain of names in waves that no job has, or that stand in two waves."""
    for name, count in times.items():
        if name not in names:
            message = f"there is no job {name!r}{did_you_mean(name, names)}"
            complaints.add(at, message, f"some of {', '.join(names)}")
        elif count > 1:
            complaints.add(at, f"{name!r} is in two waves", "each job once")


def _check_waves_of_sharing(
    complaints: Complaints, at: Place, spec: Spec, jobs: list[ReadJob]
) -> None:
    wave_of = _numbers_of_waves(spec)
    for read, earlier in _pairs(jobs):
        name, earlier_name = read.job.name, earlier.job.name
        apart = wave_of.get(name) != wave_of.get(earlier_name)
        if apart and share(read.job, earlier.job):
            message = f"{earlier_name!r} and {name!r} have one source, and are in two waves"
            complaints.add(at, message, "one wave for both")


def _numbers_of_waves(spec: Spec) -> dict[str, int]:
    """Return the number of each job's wave, by the job's name."""
    wave_of: dict[str, int] = {}
    for number, wave in enumerate(spec.waves):
        wave_of |= dict.fromkeys(wave, number)
    return wave_of


def _check_kept(complaints: Complaints, read: ReadJob) -> None:
    for word in read.job.keep:
        if word not in get_args(Keep):
            expected = f"some of {', '.join(get_args(Keep))}"
            complaints.add(read.at("keep"), f"nothing is kept by {word!r}", expected)


def _check_waivers(complaints: Complaints, read: ReadJob) -> None:
    """A waiver with a letter missing would waive nothing, and say so much later."""
    for waiver in read.job.waive:
        if waiver not in WAIVERS:
            message = f"nothing is waived by {waiver!r}{did_you_mean(waiver, WAIVERS)}"
            complaints.add(read.at("waive"), message, f"some of {', '.join(WAIVERS)}")


def _check_clusters(complaints: Complaints, spec: Spec, read: ReadJob) -> None:
    names = [cluster.name for cluster in spec.clusters]
    _check_cluster(complaints, names, read.job.source_cluster, read.at("source_cluster"))
    _check_cluster(complaints, names, read.job.target_cluster, read.at("target_cluster"))
    started = "target_cluster" if spec.rebalance is None else "source_cluster"
    for key, cluster_key in (("submit", started), ("source_submit", "source_cluster")):
        if key in read.places and cluster_key not in read.places:
            message = f"{key!r} without {cluster_key!r}"
            complaints.add(read.at(key), message, "the cluster that starts the job")


def _check_cluster(
    complaints: Complaints, names: list[str], cluster: str | None, place: Place
) -> None:
    if cluster is None or cluster in names:
        return
    message = f"there is no cluster {cluster!r}{did_you_mean(cluster, names)}"
    expected = f"one of {', '.join(names)}" if names else "a cluster under 'clusters'"
    complaints.add(place, message, expected)


def _check_ends(complaints: Complaints, read: ReadJob) -> None:
    """IS-5: the image is copied to another place than where it is.

    Where Flink is asked for a savepoint, the source is the folder in which it will make one, and
    the target may be another one there.
    """
    flink = read.job.flink
    savepoints = flink.existing_savepoints if flink is not None else ()
    is_to_be_taken = flink is not None and not savepoints
    harmless = ("apart", "inside") if is_to_be_taken else ("apart",)
    for source in dict.fromkeys((read.job.source, *savepoints)):
        _check_end(complaints, read, source, harmless)


def _check_end(
    complaints: Complaints, read: ReadJob, source: str, harmless: Collection[str]
) -> None:
    """Complain of a target that lies to one source otherwise than it may."""
    if not read.job.target or not source:
        return
    lies = relation(read.job.target, source)
    if lies not in harmless:
        message = f"the target {_RELATION[lies]} the source {source!r}"
        complaints.add(read.at(*_TARGET_KEYS), message, "a place apart from the source")


@dataclass(frozen=True)
class _Neighbour:
    """A location that others have to be apart from, and how a message names it."""

    location: str
    name: str


def _ends_of(job: JobSpec) -> list[_Neighbour]:
    ends = [
        _Neighbour(job.source, "the checkpoint location"),
        _Neighbour(job.target or "", "the remote location"),
    ]
    return [end for end in ends if end.location]


def _check_merges(complaints: Complaints, read: ReadJob) -> None:
    """Algorithm 5 moves these by rename: each into the source, so apart from it and on its file
    system.
    """
    job = read.job
    neighbours = _ends_of(job)
    places = read.each("merge_jobs", job.merge_locations)
    for merge, place in zip(job.merge_locations, places, strict=True):
        name = f"the merge directory {merge!r}"
        _check_apart(complaints, place, _Neighbour(merge, name), neighbours)
        if _is_elsewhere(merge, job.source):
            message = f"{name} is on another file system than the checkpoint location"
            complaints.add(place, message, "a directory that can be moved by renaming it")
        neighbours.append(_Neighbour(merge, name))


def _is_elsewhere(location: str, source: str) -> bool:
    """Whether a location is on another file system than the source, where there is one."""
    return bool(source) and scheme(location) != scheme(source)


def _check_united(complaints: Complaints, read: ReadJob) -> None:
    """A checkpoint that is put together with itself would count twice, and one that holds the
    target would change.
    """
    neighbours = _ends_of(read.job)
    merges = [change for change in read.job.transform if change["kind"] == "merge"]
    merged = chain.from_iterable(merge.get("locations", ()) for merge in merges)
    for location in merged:
        checkpoint = _Neighbour(location, f"the merged checkpoint {location!r}")
        _check_apart(complaints, read.at("transform"), checkpoint, neighbours)
        neighbours.append(_Neighbour(location, f"{location!r}, which is merged, too"))


def _check_apart(
    complaints: Complaints, place: Place, subject: _Neighbour, neighbours: list[_Neighbour]
) -> None:
    for neighbour in neighbours:
        lies = relation(subject.location, neighbour.location)
        if lies != "apart":
            message = f"{subject.name} {_RELATION[lies]} {neighbour.name}"
            complaints.add(place, message, "places apart")


def _check_data(complaints: Complaints, read: ReadJob) -> None:
    places = read.each("data", read.job.data)
    sources = []
    for datum, place in zip(read.job.data, places, strict=True):
        sources.append((datum.source, place))
        _check_datum(complaints, place, datum)
    for source, place, _ in _repeated(sources):
        complaints.add(place, f"{source!r} goes to two places", "each source once")


def _check_datum(complaints: Complaints, place: Place, datum: DataSpec) -> None:
    lies = relation(datum.target, datum.source)
    would_mix = datum.copy and lies != "apart"
    if lies == "same" or would_mix:
        message = f"{datum.target!r} {_RELATION[lies]} its source"
        complaints.add(place, message, "a target apart from the source")


def _check_fork(complaints: Complaints, read: ReadJob) -> None:
    """A fork leaves its source as it is, and two jobs never share an image."""
    if read.job.mode != "fork":
        return
    if read.job.merge_locations:
        complaints.add(
            read.at("mode"),
            "a fork with merge_jobs, which would change the source",
            "'move', or no merge",
        )
    if not read.job.target:
        complaints.add(read.at("mode"), "a fork without 'remote_location'", "where the copy goes")


def _check_sync(complaints: Complaints, read: ReadJob) -> None:
    """After a move the target is the only state that a job goes on from: it has to be durable."""
    if read.job.sync or not read.job.moves:
        return
    message = (
        f"a job in mode {read.job.mode!r} that is not synced: its target is all that is left of "
        "its state, and a power cut could lose it"
    )
    complaints.add(read.at("sync"), message, 'no \'sync\', or "mode": "fork"')


def _check_warm(complaints: Complaints, read: ReadJob) -> None:
    """What is copied while the job runs is copied as it is, to a place of its own; and the job
    has to be stopped in the end.
    """
    job = read.job
    if job.mode != "warm":
        _check_not_warm(complaints, read)
        return
    if job.flink is not None:
        _check_warm_flink(complaints, read, job.flink)
    _check_warm_ends(complaints, read)
    _check_only_copied(complaints, read)


def _check_warm_ends(complaints: Complaints, read: ReadJob) -> None:
    job, at = read.job, read.at("mode")
    if not job.target:
        complaints.add(at, "a warm move without 'remote_location'", "where the image goes")
    if not job.source_cluster and job.cutover != NEVER:
        expected = 'the cluster on which the job is stopped in the end; or "cutover": "never"'
        complaints.add(at, "a warm move without 'source_cluster'", expected)


def _check_only_copied(complaints: Complaints, read: ReadJob) -> None:
    """Complain of a warm move that would change the image, or merge others into it."""
    job, at = read.job, read.at("mode")
    if job.transform:
        complaints.add(at, "a warm move with 'transform'", "two runs: the change before, or after")
    if job.merge_locations:
        complaints.add(at, "a warm move with 'merge_jobs'", "two runs: merge first")


def _check_not_warm(complaints: Complaints, read: ReadJob) -> None:
    """Keys of a warm move in a job that moves otherwise; those for all jobs may stand beside."""
    for key in ("rounds", "until", "cutover"):
        place = read.places.get(key)
        if place is not None and place.pointer.startswith(read.place.pointer):
            complaints.add(place, f"{key!r} is for a job that moves warm", '"mode": "warm"')


def _check_warm_flink(complaints: Complaints, read: ReadJob, flink: FlinkJob) -> None:
    """It is followed by its checkpoints, and ends with the last one."""
    at, ending = read.at("mode"), "it ends with its last checkpoint"
    if flink.existing_savepoints:
        complaints.add(
            at,
            "a warm move of a savepoint that there is",
            "'move'; or 'job_ids', of a job that runs",
        )
    elif len(flink.job_ids) != 1:
        complaints.add(
            at, f"a warm move of {len(flink.job_ids)} jobs at once", "one in 'job_ids'; or 'move'"
        )
    if flink.cancel_job is not None:
        complaints.add(read.at("cancel_job"), "'cancel_job' with a warm move", f"without: {ending}")
    for key in sorted({"drain", "format"} & read.job.stop.keys()):
        complaints.add(
            read.at("stop"),
            f"{key!r} with a warm move",
            f"without: {ending}, and takes no savepoint",
        )


def _check_prepared(complaints: Complaints, read: ReadJob) -> None:
    submit = read.job.submit
    if submit is None or not submit.prepare:
        return
    at = read.at("submit") / "prepare" if "submit" in read.places else read.place
    _check_has_to_wait(complaints, read.job, at)


def _check_has_to_wait(complaints: Complaints, job: JobSpec, at: Place) -> None:
    """Complain of a prepared job that has no old one to wait for."""
    nothing_to_wait_for = "no 'prepare': it has nothing to wait for"
    if job.flink is not None:
        complaints.add(at, "a job of Flink that is prepared", nothing_to_wait_for)
    elif job.mode == "fork":
        complaints.add(at, "a fork that is prepared", nothing_to_wait_for)
    elif not job.source_cluster:
        expected = "the cluster on which the old job is stopped"
        complaints.add(at, "'prepare' without 'source_cluster'", expected)


def _changes_flink(change: JsonObject) -> bool:
    """Whether only an image of Flink can be changed like this."""
    return change["kind"] in ("rescale", "repair", "union") or "flink" in change or "of" in change


def _check_changes(complaints: Complaints, read: ReadJob) -> None:
    """The source is not changed, so a changed image has a place of its own; but for a compaction
    in place.
    """
    if not read.job.transform:
        return
    in_place = any(change.get("in_place") for change in read.job.transform)
    if in_place:
        _check_in_place(complaints, read)
    _check_engine_of_changes(complaints, read)
    _check_place_of_changes(complaints, read, in_place)


def _check_engine_of_changes(complaints: Complaints, read: ReadJob) -> None:
    if read.job.flink is None and any(map(_changes_flink, read.job.transform)):
        message = "a change of Flink's images, for a job of Spark"
        complaints.add(read.at("transform"), message, '"engine": "flink"')


def _check_place_of_changes(complaints: Complaints, read: ReadJob, in_place: bool) -> None:
    job, at = read.job, read.at("transform")
    if not job.target and not in_place:
        message = "a transform without 'remote_location'"
        complaints.add(at, message, "where the changed image goes")
    if job.merge_locations:
        message = "a transform with merge_jobs"
        complaints.add(at, message, "two jobs: merge first, then change")


def _check_in_place(complaints: Complaints, read: ReadJob) -> None:
    at = read.at("transform")
    if read.job.target:
        complaints.add(at, "a compaction in place with 'remote_location'", "one or the other")
    elif len(read.job.transform) > 1:
        complaints.add(at, "a compaction in place beside another change", "one or the other")


def _repeated(named: Iterable[tuple[str, Place]]) -> Iterator[tuple[str, Place, Place]]:
    """Yield every name that was there before, its place, and the place of the first."""
    first: dict[str, Place] = {}
    for name, place in named:
        if name in first:
            yield name, place, first[name]
        first.setdefault(name, place)
