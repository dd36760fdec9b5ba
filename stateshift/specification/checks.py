"""What has to hold between the parts of a spec. Every check sees all jobs and adds its complaints;
none stops another.

Nothing here looks at bytes: whether two names have the same hash is told where hashes are made, and
what lies at a location is told by its survey.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import get_args

from stateshift.specification.jobs import ReadJob
from stateshift.specification.location import relation, scheme
from stateshift.specification.model import WAIVERS, ClusterSpec, FlinkJob, Keep, Spec
from stateshift.specification.place import Complaints, Place
from stateshift.specification.waves import share

_RELATION = {"same": "is", "inside": "lies inside", "around": "holds"}


def check(complaints: Complaints, spec: Spec, jobs: list[ReadJob]) -> None:
    _check_names(complaints, jobs)
    _check_operators(complaints, jobs)
    _check_targets(complaints, jobs)
    _check_shared(complaints, jobs)
    _check_waves(complaints, spec, jobs)
    for read in jobs:
        _check_clusters(complaints, spec.clusters, read)
        _check_ends(complaints, read)
        _check_merges(complaints, read)
        _check_united(complaints, read)
        _check_data(complaints, read)
        _check_fork(complaints, read)
        _check_warm(complaints, read)
        _check_prepared(complaints, read)
        _check_changes(complaints, read)
        _check_waivers(complaints, read)
        _check_kept(complaints, read)


def _check_names(complaints: Complaints, jobs: list[ReadJob]) -> None:
    for name, place, first in _again(
        (read.job.name, read.at("name")) for read in jobs if read.job.name
    ):
        complaints.add(
            place, f"another job is called {name!r} (at {first.pointer})", "a name of its own"
        )


def _check_operators(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Names are UIDs, unique in the workflow (IS-7); a directory holds one operator."""
    operators = [
        (read.job.source, operator, place)
        for read in jobs
        for operator, place in zip(
            read.job.operators, read.each("operators", read.job.operators), strict=True
        )
    ]
    for name, place, first in _again((operator.name, place) for _, operator, place in operators):
        complaints.add(
            place, f"{name!r} names another operator, too (at {first.pointer})", "a name of its own"
        )
    adopted = [
        (f"{source}/{operator.directory}", place)
        for source, operator, place in operators
        if operator.directory
    ]
    for directory, place, first in _again(adopted):
        complaints.add(
            place,
            f"{directory!r} holds another operator, too (at {first.pointer})",
            "a directory for each",
        )


def _check_targets(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Two images at one place would be one broken image."""
    going = [(read, read.job.target) for read in jobs if read.job.target]
    for index, (read, target) in enumerate(going):
        for other, other_target in going[:index]:
            lies = relation(target, other_target)
            if lies != "apart":
                message = (
                    f"the target of {read.job.name!r} {_RELATION[lies]} the target of "
                    f"{other.job.name!r}"
                )
                complaints.add(
                    read.at("remote_location", "new_savepoint_path"), message, "a place of its own"
                )


def _check_shared(complaints: Complaints, jobs: list[ReadJob]) -> None:
    """Jobs that divide a workflow: each says which operators are its own, and takes them
    elsewhere.
    """
    for read in jobs:
        others = [other for other in jobs if other is not read and share(read.job, other.job)]
        if not others:
            continue
        fact = f"{read.job.source!r} is the source of {others[0].job.name!r}, too"
        at = read.at("checkpoint_location", "existing_savepoint_paths")
        if not read.job.operators:
            complaints.add(
                at,
                f"{fact}, and this job names no operators",
                'its own operators, or "mode": "fork"',
            )
        if not read.job.target:
            complaints.add(
                at, f"{fact}, and this job stays there", "'remote_location': where its part goes"
            )
        if read.job.merge_locations:
            complaints.add(
                read.at("merge_jobs"), f"{fact}: a merge would be divided", "two runs: merge first"
            )


def _check_waves(complaints: Complaints, spec: Spec, jobs: list[ReadJob]) -> None:
    """Every job moves in exactly one wave, and those that share a source in one."""
    if not spec.waves:
        return
    if spec.strategy:
        message = "a strategy beside waves: both say what moves together"
        complaints.add(Place(spec.strategy, "/strategy"), message, "one of them")
    at = Place(spec.waves, "/waves")
    names, planned = (
        [read.job.name for read in jobs],
        [name for wave in spec.waves for name in wave],
    )
    for name in dict.fromkeys(planned):
        if name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f", did you mean {close[0]!r}?" if close else ""
            complaints.add(at, f"there is no job {name!r}{meant}", f"some of {', '.join(names)}")
        elif planned.count(name) > 1:
            complaints.add(at, f"{name!r} is in two waves", "each job once")
    for name in names:
        if name and name not in planned:
            complaints.add(at, f"{name!r} is in no wave", "every job once")
    wave_of = {name: number for number, wave in enumerate(spec.waves) for name in wave}
    for index, read in enumerate(jobs):
        for other in jobs[:index]:
            if share(read.job, other.job) and wave_of.get(read.job.name) != wave_of.get(
                other.job.name
            ):
                message = (
                    f"{other.job.name!r} and {read.job.name!r} have one source, and are in two "
                    "waves"
                )
                complaints.add(at, message, "one wave for both")


def _check_kept(complaints: Complaints, read: ReadJob) -> None:
    for word in read.job.keep:
        if word not in get_args(Keep):
            complaints.add(
                read.at("keep"),
                f"nothing is kept by {word!r}",
                f"some of {', '.join(get_args(Keep))}",
            )


def _check_waivers(complaints: Complaints, read: ReadJob) -> None:
    """A waiver with a letter missing would waive nothing, and say so much later."""
    for waiver in read.job.waive:
        if waiver not in WAIVERS:
            close = get_close_matches(waiver, WAIVERS, n=1)
            meant = f", did you mean {close[0]!r}?" if close else ""
            complaints.add(
                read.at("waive"),
                f"nothing is waived by {waiver!r}{meant}",
                f"some of {', '.join(WAIVERS)}",
            )


def _check_clusters(
    complaints: Complaints, clusters: tuple[ClusterSpec, ...], read: ReadJob
) -> None:
    names = [cluster.name for cluster in clusters]
    for key, cluster in (
        ("source_cluster", read.job.source_cluster),
        ("target_cluster", read.job.target_cluster),
    ):
        if cluster is not None and cluster not in names:
            close = get_close_matches(cluster, names, n=1)
            meant = f", did you mean {close[0]!r}?" if close else ""
            expected = f"one of {', '.join(names)}" if names else "a cluster under 'clusters'"
            complaints.add(read.at(key), f"there is no cluster {cluster!r}{meant}", expected)
    for key, cluster_key in (("submit", "target_cluster"), ("source_submit", "source_cluster")):
        if key in read.places and cluster_key not in read.places:
            complaints.add(
                read.at(key), f"{key!r} without {cluster_key!r}", "the cluster that starts the job"
            )


def _check_ends(complaints: Complaints, read: ReadJob) -> None:
    """IS-5: the image is copied to another place than where it is. Where Flink is asked for a
    savepoint, the source is the folder in which it will make one, and the target may be another one
    there.
    """
    job, flink = read.job, read.job.flink
    taken = flink is not None and not flink.existing_savepoints
    for source in dict.fromkeys([job.source, *(flink.existing_savepoints if flink else ())]):
        lies = relation(job.target, source) if job.target and source else "apart"
        if lies != "apart" and not (taken and lies == "inside"):
            at = read.at("remote_location", "new_savepoint_path")
            message = f"the target {_RELATION[lies]} the source {source!r}"
            complaints.add(at, message, "a place apart from the source")


def _check_merges(complaints: Complaints, read: ReadJob) -> None:
    """Algorithm 5 moves these by rename: each into the source, so apart from it and on its file
    system.
    """
    merges = read.job.merge_locations
    ends = [("the checkpoint location", read.job.source), ("the remote location", read.job.target)]
    for index, (merge, place) in enumerate(
        zip(merges, read.each("merge_jobs", merges), strict=True)
    ):
        earlier = [(f"the merge directory {location!r}", location) for location in merges[:index]]
        for what, location in [*ends, *earlier]:
            lies = relation(merge, location) if location else "apart"
            if lies != "apart":
                complaints.add(
                    place, f"the merge directory {merge!r} {_RELATION[lies]} {what}", "places apart"
                )
        if read.job.source and scheme(merge) != scheme(read.job.source):
            message = (
                f"the merge directory {merge!r} is on another file system than the checkpoint "
                "location"
            )
            complaints.add(place, message, "a directory that can be moved by renaming it")


def _check_united(complaints: Complaints, read: ReadJob) -> None:
    """A checkpoint that is put together with itself would count twice, and one that holds the
    target would change.
    """
    merges = [change for change in read.job.transform if change["kind"] == "merge"]
    merged = [location for merge in merges for location in merge.get("locations", ())]
    ends = [("the checkpoint location", read.job.source), ("the remote location", read.job.target)]
    for index, location in enumerate(merged):
        earlier = [(f"{other!r}, which is merged, too", other) for other in merged[:index]]
        for what, other in [*ends, *earlier]:
            lies = relation(location, other) if other else "apart"
            if lies != "apart":
                message = f"the merged checkpoint {location!r} {_RELATION[lies]} {what}"
                complaints.add(read.at("transform"), message, "places apart")


def _check_data(complaints: Complaints, read: ReadJob) -> None:
    places = read.each("data", read.job.data)
    for datum, place in zip(read.job.data, places, strict=True):
        lies = relation(datum.target, datum.source)
        if lies == "same" or (datum.copy and lies != "apart"):
            complaints.add(
                place,
                f"{datum.target!r} {_RELATION[lies]} its source",
                "a target apart from the source",
            )
    for source, place, _ in _again(
        zip((datum.source for datum in read.job.data), places, strict=True)
    ):
        complaints.add(place, f"{source!r} goes to two places", "each source once")


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


def _check_warm(complaints: Complaints, read: ReadJob) -> None:
    """What is brought over while the job runs is brought as it is, to a place of its own; and it
    has to be stopped.
    """
    job, at = read.job, read.at("mode")
    if job.mode != "warm":
        for key in ("rounds", "until", "cutover"):
            if key in read.places and read.places[key].pointer.startswith(read.place.pointer):
                complaints.add(
                    read.at(key), f"{key!r} is for a job that moves warm", '"mode": "warm"'
                )
        return
    if job.flink is not None:
        _check_warm_flink(complaints, read, job.flink)
    if not job.target:
        complaints.add(at, "a warm move without 'remote_location'", "where the image goes")
    if not job.source_cluster:
        complaints.add(
            at,
            "a warm move without 'source_cluster'",
            "the cluster on which the job is stopped in the end",
        )
    if job.transform:
        complaints.add(at, "a warm move with 'transform'", "two runs: the change before, or after")
    if job.merge_locations:
        complaints.add(at, "a warm move with 'merge_jobs'", "two runs: merge first")


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
    job = read.job
    if job.submit is not None and job.submit.prepare:
        at = read.at("submit") / "prepare" if "submit" in read.places else read.place
        if job.flink is not None or job.mode == "fork":
            what = "a job of Flink" if job.flink is not None else "a fork"
            complaints.add(
                at, f"{what} that is prepared", "no 'prepare': it has nothing to wait for"
            )
        elif not job.source_cluster:
            complaints.add(
                at,
                "'prepare' without 'source_cluster'",
                "the cluster on which the old job is stopped",
            )


def _check_changes(complaints: Complaints, read: ReadJob) -> None:
    """The source is not changed, so a changed image has a place of its own; but for a compaction
    in place.
    """
    in_place = [change for change in read.job.transform if change.get("in_place")]
    if in_place and (read.job.target or len(read.job.transform) > 1):
        wrong = "with 'remote_location'" if read.job.target else "beside another change"
        complaints.add(read.at("transform"), f"a compaction in place {wrong}", "one or the other")
    of_flink = any(
        change["kind"] in ("rescale", "repair", "union") or {"flink", "of"} & change.keys()
        for change in read.job.transform
    )
    if read.job.flink is None and of_flink:
        complaints.add(
            read.at("transform"),
            "a change of Flink's images, for a job of Spark",
            '"engine": "flink"',
        )
    if read.job.transform and not read.job.target and not in_place:
        complaints.add(
            read.at("transform"),
            "a transform without 'remote_location'",
            "where the changed image goes",
        )
    if read.job.transform and read.job.merge_locations:
        complaints.add(
            read.at("transform"),
            "a transform with merge_jobs",
            "two jobs: merge first, then change",
        )


def _again(named: Iterable[tuple[str, Place]]) -> Iterator[tuple[str, Place, Place]]:
    """Every name that was there before, its place, and that of the first."""
    first: dict[str, Place] = {}
    for name, place in named:
        if name in first:
            yield name, place, first[name]
        first.setdefault(name, place)
