"""Rules between the parts of a spec. Each sees all jobs, or one, and yields its complaints; none
stops another.

Nothing here looks at bytes: where hashes are made it shows whether two names have the same one, and
a survey says what lies at a location.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import get_args

from stateshift.specification.grammars import BY_COMPARING, BY_FILE, NEVER
from stateshift.specification.job_relations import share
from stateshift.specification.jobs import ReadJob
from stateshift.specification.location import relation, scheme
from stateshift.specification.model import WAIVERS, JobSpec, Keep, Spec
from stateshift.specification.place import Complaints, Flaws, Place
from stateshift.specification.transform import (
    Change,
    Compact,
    Convert,
    Drop,
    Rename,
    Repair,
    Reposition,
    Rescale,
    Union,
    find_change,
    locations_merged,
)
from stateshift.suggestion import did_you_mean

_TARGET_KEYS = ("remote_location", "new_savepoint_path")
_RELATION = {"same": "is", "inside": "lies inside", "around": "holds"}


def check(complaints: Complaints, spec: Spec, jobs: list[ReadJob]) -> None:
    """Add a complaint for everything that does not fit together."""
    for rule in RULES:
        complaints.add_all(rule(spec, jobs))
    for read in jobs:
        for rule_of_job in RULES_OF_A_JOB:
            complaints.add_all(rule_of_job(spec, read))


# -------------------------------------------------------------------------- all jobs


def _names(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    named = [(read.job.name, read.at("name")) for read in jobs if read.job.name]
    for name, place, first in _repeated(named):
        yield place, f"another job is called {name!r} (at {first.pointer})", "a name of its own"


def _operators(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    """Names are UIDs, unique in the workflow (IS-7); a directory holds one operator."""
    names, directories = [], []
    for read in jobs:
        places = read.each("operators", read.job.operators)
        for operator, place in zip(read.job.operators, places, strict=True):
            names.append((operator.name, place))
            if operator.directory:
                directories.append((f"{read.job.source}/{operator.directory}", place))
    for name, place, first in _repeated(names):
        message = f"{name!r} names another operator, too (at {first.pointer})"
        yield place, message, "a name of its own"
    for directory, place, first in _repeated(directories):
        message = f"{directory!r} holds another operator, too (at {first.pointer})"
        yield place, message, "a directory for each"


def _targets(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    """Two images at one place would be one broken image."""
    for read, earlier in _pairs([read for read in jobs if read.job.target]):
        lies = relation(read.job.target or "", earlier.job.target or "")
        if lies != "apart":
            other = f"the target of {earlier.job.name!r}"
            message = f"the target of {read.job.name!r} {_RELATION[lies]} {other}"
            yield read.at(*_TARGET_KEYS), message, "a place of its own"


def _shared_sources(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    """Jobs that divide a workflow each name their own operators, and take them elsewhere."""
    for read in jobs:
        others = [other for other in jobs if other is not read]
        sharing = [other for other in others if share(read.job, other.job)]
        if not sharing:
            continue
        fact = f"{read.job.source!r} is the source of {sharing[0].job.name!r}, too"
        at = read.at("checkpoint_location", "existing_savepoint_paths")
        if not read.job.operators:
            expected = 'its own operators, or "mode": "fork"'
            yield at, f"{fact}, and this job names no operators", expected
        if not read.job.target:
            expected = "'remote_location': where its part goes"
            yield at, f"{fact}, and this job stays there", expected
        if read.job.merge_locations:
            message = f"{fact}: a merge would be divided"
            yield read.at("merge_jobs"), message, "two runs: merge first"


def _waves(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    """Every job moves in exactly one wave."""
    if not spec.waves:
        return
    if spec.strategy:
        message = "a strategy beside waves: both say what moves together"
        yield Place(spec.strategy, "/strategy"), message, "one of them"
    at = Place(spec.waves, "/waves")
    names = [read.job.name for read in jobs]
    times = Counter(chain.from_iterable(spec.waves))
    for name, count in times.items():
        if name not in names:
            message = f"there is no job {name!r}{did_you_mean(name, names)}"
            yield at, message, f"some of {', '.join(names)}"
        elif count > 1:
            yield at, f"{name!r} is in two waves", "each job once"
    for name in names:
        if name and name not in times:
            yield at, f"{name!r} is in no wave", "every job once"


def _waves_of_sharing(spec: Spec, jobs: list[ReadJob]) -> Flaws:
    """Jobs that share a source move in one wave."""
    wave_of: dict[str, int] = {}
    for number, wave in enumerate(spec.waves):
        wave_of |= dict.fromkeys(wave, number)
    for read, earlier in _pairs(jobs):
        name, earlier_name = read.job.name, earlier.job.name
        apart = wave_of.get(name) != wave_of.get(earlier_name)
        if apart and share(read.job, earlier.job):
            message = f"{earlier_name!r} and {name!r} have one source, and are in two waves"
            yield Place(spec.waves, "/waves"), message, "one wave for both"


def _pairs(jobs: list[ReadJob]) -> Iterator[tuple[ReadJob, ReadJob]]:
    """Yield every job with each that stands before it."""
    for index, read in enumerate(jobs):
        for earlier in jobs[:index]:
            yield read, earlier


def _repeated(named: Iterable[tuple[str, Place]]) -> Iterator[tuple[str, Place, Place]]:
    """Yield every name that was there before, its place, and the place of the first."""
    first: dict[str, Place] = {}
    for name, place in named:
        if name in first:
            yield name, place, first[name]
        first.setdefault(name, place)


# -------------------------------------------------------------------------- one job


def _clusters(spec: Spec, read: ReadJob) -> Flaws:
    names = [cluster.name for cluster in spec.clusters]
    for key in ("source_cluster", "target_cluster"):
        cluster = getattr(read.job, key)
        if cluster is not None and cluster not in names:
            message = f"there is no cluster {cluster!r}{did_you_mean(cluster, names)}"
            expected = f"one of {', '.join(names)}" if names else "a cluster under 'clusters'"
            yield read.at(key), message, expected
    started = "target_cluster" if spec.rebalance is None else "source_cluster"
    for key, cluster_key in (("submit", started), ("source_submit", "source_cluster")):
        if key in read.places and cluster_key not in read.places:
            message = f"{key!r} without {cluster_key!r}"
            yield read.at(key), message, "the cluster that starts the job"


def _ends(spec: Spec, read: ReadJob) -> Flaws:
    """IS-5: the image goes elsewhere. Where Flink is asked for a savepoint, the source is a folder,
    and the target may be in it.
    """
    job, flink = read.job, read.job.flink
    savepoints = flink.existing_savepoints if flink is not None else ()
    is_to_be_taken = flink is not None and not savepoints
    harmless = ("apart", "inside") if is_to_be_taken else ("apart",)
    for source in filter(None, dict.fromkeys((job.source, *savepoints))):
        lies = relation(job.target, source) if job.target else "apart"
        if lies not in harmless:
            message = f"the target {_RELATION[lies]} the source {source!r}"
            yield read.at(*_TARGET_KEYS), message, "a place apart from the source"


def _merges(spec: Spec, read: ReadJob) -> Flaws:
    """Algorithm 5 renames these into the source: they are apart from it, on its file system."""
    source, neighbours = read.job.source, _named_ends(read.job)
    places = read.each("merge_jobs", read.job.merge_locations)
    for merge, place in zip(read.job.merge_locations, places, strict=True):
        name = f"the merge directory {merge!r}"
        yield from _not_apart(place, merge, name, neighbours)
        if source and scheme(merge) != scheme(source):
            message = f"{name} is on another file system than the checkpoint location"
            yield place, message, "a directory that can be moved by renaming it"
        neighbours.append((merge, name))


def _united(spec: Spec, read: ReadJob) -> Flaws:
    """A checkpoint merged with itself would count twice; one around the target would change."""
    neighbours = _named_ends(read.job)
    for location in locations_merged(read.job.transform):
        name = f"the merged checkpoint {location!r}"
        yield from _not_apart(read.at("transform"), location, name, neighbours)
        neighbours.append((location, f"{location!r}, which is merged, too"))


def _named_ends(job: JobSpec) -> list[tuple[str, str]]:
    """Return the locations of source and target, as far as there are any, and their names."""
    ends = [(job.source, "the checkpoint location"), (job.target or "", "the remote location")]
    return [end for end in ends if end[0]]


def _not_apart(
    place: Place, location: str, name: str, neighbours: Iterable[tuple[str, str]]
) -> Flaws:
    for other, name_of_other in neighbours:
        lies = relation(location, other)
        if lies != "apart":
            yield place, f"{name} {_RELATION[lies]} {name_of_other}", "places apart"


def _data(spec: Spec, read: ReadJob) -> Flaws:
    places = read.each("data", read.job.data)
    for datum, place in zip(read.job.data, places, strict=True):
        lies = relation(datum.target, datum.source)
        would_mix = datum.copy and lies != "apart"
        if lies == "same" or would_mix:
            message = f"{datum.target!r} {_RELATION[lies]} its source"
            yield place, message, "a target apart from the source"
    sources = [datum.source for datum in read.job.data]
    for source, place, _ in _repeated(zip(sources, places, strict=True)):
        yield place, f"{source!r} goes to two places", "each source once"


def _fork_or_sync(spec: Spec, read: ReadJob) -> Flaws:
    """A fork leaves its source as it is, and two jobs never share an image. The target of a move is
    the only state that the job goes on from: it has to be durable.
    """
    if read.job.moves and not read.job.sync:
        message = (
            f"a job in mode {read.job.mode!r} that is not synced: its target is all that is left "
            "of its state, and a power cut could lose it"
        )
        yield read.at("sync"), message, 'no \'sync\', or "mode": "fork"'
    if not read.job.moves and read.job.merge_locations:
        message = "a fork with merge_jobs, which would change the source"
        yield read.at("mode"), message, "'move', or no merge"
    if not read.job.moves and not read.job.target:
        yield read.at("mode"), "a fork without 'remote_location'", "where the copy goes"


def _warm(spec: Spec, read: ReadJob) -> Flaws:
    """A warm job's image is copied as it is, elsewhere; in the end somebody stops the job."""
    job, at = read.job, read.at("mode")
    if job.mode != "warm":
        # Keys for all jobs may stand beside jobs of which some are warm.
        for key in ("rounds", "until", "cutover"):
            place = read.places.get(key)
            if place is not None and place.pointer.startswith(read.place.pointer):
                yield place, f"{key!r} is for a job that moves warm", '"mode": "warm"'
        return
    yield from _warm_flink(read)
    if not job.target:
        yield at, "a warm move without 'remote_location'", "where the image goes"
    if not job.source_cluster and job.cutover != NEVER:
        expected = 'the cluster on which the job is stopped in the end; or "cutover": "never"'
        yield at, "a warm move without 'source_cluster'", expected
    repositions = [change for change in job.transform if isinstance(change, Reposition)]
    if job.flink is not None and job.transform:
        yield at, "a warm move of Flink with 'transform'", "two runs: the change before, or after"
    elif len(repositions) < len(job.transform):
        message = "a warm move with a 'transform' that is more than a reposition"
        yield at, message, "two runs: the change before, or after"
    elif job.is_standby and any(each.by in (None, BY_FILE) for each in repositions):
        message = "a standby whose source reads on in another table, or by a file of offsets"
        yield at, message, "a topic, by another way: its offsets change with each round"
    if job.merge_locations:
        yield at, "a warm move with 'merge_jobs'", "two runs: merge first"


def _standby(spec: Spec, read: ReadJob) -> Flaws:
    """Only a standby can keep to what it says; and nothing can be lost later than at once."""
    place = read.places.get("standby")
    if place is None:
        return
    was_one = read.job.takes_back is not None  # and is one again, the other way
    if not read.job.is_standby and not was_one and place.pointer.startswith(read.place.pointer):
        expected = '"mode": "warm" and "cutover": "never"'
        yield place, "'standby' is for a job that is never cut over", expected
    if read.job.standby.rpo == 0:
        yield place / "rpo", "no standby can keep to 0", "a duration above 0, such as 5min"


def _warm_flink(read: ReadJob) -> Flaws:
    """A warm job of Flink is followed by its checkpoints, and ends with the last one."""
    flink, at, ending = read.job.flink, read.at("mode"), "it ends with its last checkpoint"
    if flink is None:
        return
    if flink.existing_savepoints:
        expected = "'move'; or 'job_ids', of a job that runs"
        yield at, "a warm move of a savepoint that there is", expected
    elif len(flink.job_ids) != 1:
        message = f"a warm move of {len(flink.job_ids)} jobs at once"
        yield at, message, "one in 'job_ids'; or 'move'"
    if flink.cancel_job is not None:
        yield read.at("cancel_job"), "'cancel_job' with a warm move", f"without: {ending}"
    for key in sorted({"drain", "format"} & read.job.stop.keys()):
        expected = f"without: {ending}, and takes no savepoint"
        yield read.at("stop"), f"{key!r} with a warm move", expected


def _prepared(spec: Spec, read: ReadJob) -> Flaws:
    """A prepared job waits for an old one."""
    job = read.job
    if job.submit is None or not job.submit.prepare:
        return
    at = read.at("submit") / "prepare" if "submit" in read.places else read.place
    nothing_to_wait_for = "no 'prepare': it has nothing to wait for"
    if job.flink is not None:
        yield at, "a job of Flink that is prepared", nothing_to_wait_for
    elif job.mode == "fork":
        yield at, "a fork that is prepared", nothing_to_wait_for
    elif not job.source_cluster:
        expected = "the cluster on which the old job is stopped"
        yield at, "'prepare' without 'source_cluster'", expected


def _takes_over(spec: Spec, read: ReadJob) -> Flaws:
    """A job that is started from its standby stays there, and its primary is on a known cluster."""
    job = read.job
    if job.takes_over is None:
        return
    at = read.at("takes_over")
    if job.target or job.source_cluster or job.mode != "move":
        message = "'takes_over' beside 'remote_location', 'source_cluster' or another 'mode'"
        yield at, message, "a job that is started where its standby is"
    names = [cluster.name for cluster in spec.clusters]
    if job.takes_over.cluster not in (None, *names):
        message = f"there is no cluster {job.takes_over.cluster!r}"
        yield at / "cluster", message, "one of 'clusters'"


def _drill(spec: Spec, read: ReadJob) -> Flaws:
    """A drill starts a fork of a standby, on a cluster of the spec, in a place of its own."""
    job = read.job
    if job.rehearses and (len(spec.jobs) > 1 or job.moves):
        message = "'rehearses' beside another job, or in another 'mode' than fork"
        yield read.at("rehearses"), message, "as `stateshift drill` writes it"
    if job.drill is None:
        return
    at = read.at("drill")
    if job.mode != "warm" and job.takes_over is None:
        yield at, "a drill of a job that has no standby", '"mode": "warm"'
    names = [cluster.name for cluster in spec.clusters]
    cluster = job.drill.cluster
    if cluster is not None and cluster not in names:
        message = f"there is no cluster {cluster!r}{did_you_mean(cluster, names)}"
        yield at / "cluster", message, f"one of {', '.join(names)}"
    if job.drill.submit is not None and job.drill_cluster is None:
        message = "a drill with 'submit', and without 'cluster' or 'target_cluster'"
        yield at / "submit", message, "the cluster that starts the job"
    if job.drill.submit is not None and job.drill.submit.prepare:
        message = "a drill that is prepared"
        yield at / "submit" / "prepare", message, "no 'prepare': it has nothing to wait for"
    if job.drill.location is not None:
        name = f"the drill's place {job.drill.location!r}"
        yield from _not_apart(at / "location", job.drill.location, name, _named_ends(job))


def _sets_aside(spec: Spec, read: ReadJob) -> Flaws:
    """Files are set aside at the target of a job that moves warm, and nowhere else."""
    job = read.job
    if job.set_aside and job.mode != "warm":
        yield read.at("set_aside"), "'set_aside' of a job that does not move warm", '"mode": "warm"'
    if job.set_aside and any(data.copy for data in job.data):
        message = "'set_aside' of a job with data that moves along"
        yield read.at("set_aside"), message, "no 'data' that is copied"
    if job.takes_back is not None and (job.mode != "warm" or job.is_standby):
        message = "'takes_back' of a job that does not go home"
        yield read.at("takes_back"), message, '"mode": "warm", and another \'cutover\''


def _changes(spec: Spec, read: ReadJob) -> Flaws:
    """The source is not changed, so a changed image goes elsewhere, but for compaction in place."""
    job, at = read.job, read.at("transform")
    if not job.transform:
        return
    compact = find_change(job.transform, Compact)
    in_place = compact is not None and compact.in_place
    if in_place and job.target:
        yield at, "a compaction in place with 'remote_location'", "one or the other"
    elif in_place and len(job.transform) > 1:
        yield at, "a compaction in place beside another change", "one or the other"
    if job.flink is None and any(map(_changes_flink, job.transform)):
        yield at, "a change of Flink's images, for a job of Spark", '"engine": "flink"'
    repair = find_change(job.transform, Repair)
    if job.flink is not None and repair is not None and not repair.files:
        yield at, "a repair by batch, for a job of Flink", "'files'"
    if not job.target and not in_place and job.takes_over is None:
        yield at, "a transform without 'remote_location'", "where the changed image goes"
    if job.merge_locations:
        yield at, "a transform with merge_jobs", "two jobs: merge first, then change"


def _new_offsets(spec: Spec, read: ReadJob) -> Flaws:
    """Brokers are asked for a topic's new offsets; where records are compared, both sides are."""
    kafka = read.job.kafka
    places = read.each("transform", read.job.transform)
    ways: list[tuple[str, Place]] = []
    for change, place in zip(read.job.transform, places, strict=True):
        if isinstance(change, Reposition) and change.by is not None:
            ways.append((change.by, place))
        if isinstance(change, Reposition) and change.root is not None and read.job.flink is None:
            expected = "'data', which copies files and rewrites their paths in the source's log"
            yield place, "'root' of a Spark job", expected
        if isinstance(change, Reposition) and change.commit and read.job.mode == "fork":
            expected = "a move: beside a fork the old job goes on, and with it its group"
            yield place, "'commit' in a fork", expected
    if kafka is not None and read.job.flink is not None and not ways:
        message = "'kafka' of a Flink job whose topics stay"
        yield read.at("kafka"), message, "a 'reposition' in 'transform'"
    for way, place in ways:
        if kafka is None:
            expected = "the brokers that the job reads afterwards, and has read so far"
            yield place, "a topic's new offsets without 'kafka'", expected
        elif way in BY_COMPARING and kafka.source_bootstrap_servers is None:
            message = f"by {way!r} without 'source_bootstrap_servers' of 'kafka'"
            yield place, message, "the brokers that the job has read so far"


def _changes_flink(change: Change) -> bool:
    """Whether only an image of Flink can be changed like this."""
    match change:
        case Rescale() | Union():
            return True
        case Repair():
            return bool(change.files)
        case Rename() | Drop():
            return change.of is not None
        case Convert():
            return change.flink is not None
    return False


def _words(spec: Spec, read: ReadJob) -> Flaws:
    """A waiver with a letter missing would waive nothing, and say so much later."""
    for waiver in read.job.waive:
        if waiver not in WAIVERS:
            message = f"nothing is waived by {waiver!r}{did_you_mean(waiver, WAIVERS)}"
            yield read.at("waive"), message, "names that findings give"  # the hint lists them
    for word in read.job.keep:
        if word not in get_args(Keep):
            expected = f"some of {', '.join(get_args(Keep))}"
            yield read.at("keep"), f"nothing is kept by {word!r}", expected


RULES: tuple[Callable[[Spec, list[ReadJob]], Flaws], ...]
RULES = (_names, _operators, _targets, _shared_sources, _waves, _waves_of_sharing)
RULES_OF_A_JOB: tuple[Callable[[Spec, ReadJob], Flaws], ...] = (
    *(_clusters, _ends, _merges, _united, _data, _fork_or_sync),
    *(_warm, _standby, _prepared, _takes_over, _drill, _sets_aside, _changes, _new_offsets, _words),
)
