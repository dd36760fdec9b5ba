"""Before anything happens: what is there is gathered, and what would be done is proposed. Reads
only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from stateshift import __version__, lock, plain
from stateshift.clusters.protocol import Cluster, JobState, JobStatus, RunningJob, StopRequest
from stateshift.engines.protocol import Engine
from stateshift.engines.registry import engine
from stateshift.errors import Complaint, JournalError, MissingFile, PlanError, SpecError
from stateshift.estimating import estimated, probe
from stateshift.extensions import names_added
from stateshift.migration import flink_checks, preflight
from stateshift.migration.arrivals import Arrivals, with_arrivals
from stateshift.migration.doors import Doors
from stateshift.migration.wave_order import cuts_of, waves
from stateshift.plan import PLAN_VERSION, Plan, decode_plan, encode_plan
from stateshift.specification import ClusterSpec, JobSpec, Spec, parse_spec, to_plain_spec
from stateshift.specification.warm import seconds_of
from stateshift.specification.waves import sharing
from stateshift.storage import locations
from stateshift.storage.opening import real_location
from stateshift.storage.protocol import Storage
from stateshift.suggestion import did_you_mean
from stateshift.survey import ClusterFacts, Facts, Finding, SinkFacts, Survey
from stateshift.workdir import Workdir

LOOKS = 4
SECONDS_BETWEEN_LOOKS = 0.25
QUESTIONS_AT_ONCE = 8
STOPPED = "job-stopped"  # the waiver: somebody has seen that the job does not run
NO_TAG = "stateshift.nobody-has-submitted-this"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What `plan` prints and `apply` executes: the plans of every job that was asked for."""

    spec: Spec
    plans: tuple[Plan, ...]

    @property
    def fingerprint(self) -> str:
        return plain.fingerprint(
            [to_plain_spec(self.spec), [plan.fingerprint for plan in self.plans]]
        )

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(finding for plan in self.plans for finding in plan.refusals)

    def jobs(self, only: Collection[str] = ()) -> tuple[JobSpec, ...]:
        """The jobs to be carried out: all that were planned, or those of them that are named."""
        planned = {plan.job for plan in self.plans}
        wanted = jobs_of(self.spec, only or planned)
        without = [job.name for job in wanted if job.name not in planned]
        if without:
            raise PlanError(
                f"nothing was planned for {', '.join(map(repr, without))}",
                hint="plan again: without --job, or with every one that is to move",
            )
        return wanted

    def of_jobs(self, only: Collection[str]) -> Proposal:
        """The plans of these alone."""
        wanted = {job.name for job in self.jobs(only)}
        return replace(self, plans=tuple(plan for plan in self.plans if plan.job in wanted))


def encode_proposal(proposal: Proposal) -> dict[str, Any]:
    return {
        "stateshift_plan": PLAN_VERSION,
        "stateshift": __version__,
        "fingerprint": proposal.fingerprint,
        "spec": to_plain_spec(proposal.spec),
        "plans": [encode_plan(plan) for plan in proposal.plans],
    }


def decode_proposal(value: Any) -> Proposal:
    """A saved plan, read back; one that another version made or somebody changed is refused."""
    if not isinstance(value, dict) or "stateshift_plan" not in value:
        raise PlanError("not a saved plan", hint="make one: stateshift plan SPEC -o FILE")
    if value["stateshift_plan"] != PLAN_VERSION:
        raise PlanError(
            "the plan was made by another version of stateshift "
            f"({value.get('stateshift', 'unknown')}; "
            f"this is {__version__})",
            hint="make it again: stateshift plan SPEC -o FILE",
        )
    try:
        spec = parse_spec(plain.canonical(value.get("spec")), names_added=names_added)
        plans = value.get("plans")
        proposal = Proposal(spec, tuple(decode_plan(plan) for plan in list(plans or ())))
    except (SpecError, TypeError, RecursionError):
        proposal = None
    if proposal is None or proposal.fingerprint != value.get("fingerprint"):
        raise PlanError(
            "the saved plan does not match its fingerprint: it was changed by hand or damaged",
            hint="make it again: stateshift plan SPEC -o FILE",
        )
    return proposal


def gather(
    spec: Spec,
    job: JobSpec,
    doors: Doors,
    workdir: Workdir,
    probing: bool = False,
    arrived: Arrivals | None = None,
    before: Facts | None = None,
) -> Facts:
    """All the reading there is before a plan exists. `probing` is for a plan that is shown: how
    fast its storages are, and what is asked of them before anything moves (`preflight`). `arrived`
    is what rounds have left at the target already; what clusters said `before` is not asked of them
    again.
    """
    kind = engine(spec.engine)
    check_submits(spec, job)
    with _asking(job, doors) as ask:
        source_of = ask(lambda: _source(spec, kind, job, doors, workdir))
        target = ask(lambda: _survey(spec, job.target or job.source, doors)) if job.target else None
        merges = [ask(partial(_survey, spec, location, doors)) for location in job.merge_locations]
        data = [
            (
                ask(partial(_data, kind, d.source, doors, True)),
                ask(partial(_data, kind, d.target, doors, d.copy)),
            )
            for d in job.data
        ]
        others = [
            ask(partial(_survey, spec, location, doors, job.transform))
            for location in other_images(job)
        ]
        here = ask(
            lambda: (
                before.source_cluster
                if before is not None
                else _cluster_facts(spec, job.source_cluster, job, doors, workdir, running=True)
            )
        )
        there = ask(
            lambda: (
                before.target_cluster
                if before is not None
                else _cluster_facts(spec, job.target_cluster, job, doors, workdir, running=False)
            )
        )
        source, found = source_of()
        survey = kind.own_part(spec, job, _surveyed(found, source))
        facts = Facts(
            source=survey,
            target=target() if target is not None else survey,
            merges=tuple(one() for one in merges),
            data=tuple((one(), other()) for one, other in data),
            source_cluster=here(),
            target_cluster=there(),
            rates=probe(source, survey) if probing else None,
            at=doors.clock.now(),
            others=tuple(one() for one in others),
            sink=_sink(kind, job, survey, doors),
        )
    if arrived:
        facts = with_arrivals(facts, arrived)
    return preflight.asked(spec, job, facts, doors) if probing else facts


def _sink(kind: Engine, job: JobSpec, survey: Survey, doors: Doors) -> SinkFacts | None:
    """Read what the sink that the spec names has of the queries of this image. What it is not asked
    for by a rewind ends with the image's own last batch.
    """
    if job.sink is None:
        return None
    queries = {
        image.identity: image.epoch or 0 for image in survey.images if image.identity is not None
    }
    return kind.read_sink(job.sink, doors.open_storage, queries)


class Ask(Protocol):
    """A question is put, and its answer is asked for when it is needed."""

    def __call__(self, question: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def _asking(job: JobSpec, doors: Doors) -> Iterator[Ask]:
    """All at once where each is mostly waited for, since the job may be down meanwhile; else each
    when its answer is wanted, in the order in which these are.
    """
    if doors.open_storage(job.source).traits.at_once <= 1:
        yield lambda question: question
        return
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE, thread_name_prefix="gather") as threads:
        yield lambda question: threads.submit(copy_context().run, question).result


def check_submits(spec: Spec, job: JobSpec) -> None:
    """How it is started where it goes, and where it was if that is taken back."""
    number = [one.name for one in spec.jobs].index(job.name)
    for cluster, submit, key, connection in (
        (job.target_cluster, job.submit, "submit", job.connection),
        (job.source_cluster, job.source_submit, "source_submit", None),
    ):
        if submit is not None and cluster is not None:
            from stateshift.clusters.opening import check_submit

            check_submit(spec.cluster(cluster), submit.options, f"/jobs/{number}/{key}", connection)


def _source(
    spec: Spec, kind: Engine, job: JobSpec, doors: Doors, workdir: Workdir
) -> tuple[Storage, Survey]:
    """What is there; of images that are still to be taken, nothing is. A job that is followed while
    it runs is looked at where its last checkpoint is. One that runs tidies up while we look: what
    is really missing is missing the next time, too.
    """
    for _ in range(LOOKS if job.source_cluster is not None or not job.moves else 0):
        with suppress(MissingFile):
            storage, survey = source_now(spec, kind, job, doors, workdir)
            if not survey.damages:
                return storage, survey
        doors.clock.sleep(SECONDS_BETWEEN_LOOKS)
    try:
        return source_now(spec, kind, job, doors, workdir)
    except MissingFile:
        if not job.takes_savepoints:
            raise
        return _nothing_yet(
            job, doors
        )  # each checkpoint is gone by the time it is read: the next look, or the end


def source_now(
    spec: Spec, kind: Engine, job: JobSpec, doors: Doors, workdir: Workdir
) -> tuple[Storage, Survey]:
    location: str | None = job.source
    if job.takes_savepoints:
        location = _last_checkpoint(spec, job, doors, workdir) if job.mode == "warm" else None
    if location is None:
        return _nothing_yet(job, doors)
    storage, survey = kind.survey(location, doors.open_storage, changes=job.transform)
    if job.takes_savepoints and survey.engine is None:
        raise MissingFile(
            f"the checkpoint at {location} is gone: a newer one has been completed",
            location=location,
        )
    return storage, survey


def _nothing_yet(job: JobSpec, doors: Doors) -> tuple[Storage, Survey]:
    storage = doors.open_storage(job.source)
    return storage, Survey(storage.location, None, "empty", ())


def _last_checkpoint(spec: Spec, job: JobSpec, doors: Doors, workdir: Workdir) -> str | None:
    """Of a cluster that can tell."""
    assert job.flink is not None and job.source_cluster is not None, "a spec that is checked"
    cluster = doors.open_cluster(spec.cluster(job.source_cluster), workdir)
    ask: Callable[[str], str | None] | None = getattr(cluster, "latest_checkpoint", None)
    return ask(job.flink.job_ids[0]) if ask is not None else None


def propose(
    spec: Spec, doors: Doors, workdir: Workdir, only: Collection[str] = (), deep: bool = False
) -> Proposal:
    """The plans of the spec's jobs, with estimates. Reads, and changes nothing. `deep`: to the end
    of all that a restart needs.
    """
    plans = []
    throttle = (spec.bytes_per_second, spec.operations_per_second)
    for job in jobs_of(spec, only):
        parent = doors.open_storage(locations.parent(job.destination))
        lock.refuse_held(parent, locations.name(job.destination))
        facts = gather(spec, job, doors, workdir, probing=True)
        made = engine(spec.engine).plan(spec, job, facts)
        if deep:
            made = (*made[:-1], _looked_into(made[-1], spec, job, doors, workdir))
        left = seconds_of(job.until) if any(plan.purpose == "warm" for plan in made) else None
        plans += [replace(plan, estimate=estimated(plan, facts, throttle, left)) for plan in made]
    return Proposal(spec, tuple(plans))


def _looked_into(plan: Plan, spec: Spec, job: JobSpec, doors: Doors, workdir: Workdir) -> Plan:
    """The plan, with what a deep look at its source finds."""
    from stateshift.migration.source_check import damages

    doors.meter.say(f"{job.name}: looking at the source")
    return replace(plan, findings=(*plan.findings, *damages(spec, job, doors, workdir)))


def proposal_of(workdir: Workdir) -> Proposal:
    """What a run carries out. Its plans speak the language of the version that made them."""
    value = workdir.read("proposal.json")
    made_by = value.get("stateshift") if isinstance(value, dict) else None
    try:
        return decode_proposal(value)
    except PlanError as error:
        same = made_by in (None, __version__)
        again = (
            "restore it from a copy"
            if same
            else f"pip install stateshift=={made_by}, then the same command again"
        )
        where = f"{workdir.path / 'proposal.json'}: {error.fact}"
        raise JournalError(where, hint=again) from error


def jobs_of(spec: Spec, only: Collection[str] = ()) -> tuple[JobSpec, ...]:
    """The jobs to work on, in the order in which they move: all, or those that are named (IS-3),
    with all that moves together among them.
    """
    names = [job.name for job in spec.jobs]
    unknown = next((name for name in only if name not in names), None)
    if unknown is not None:
        raise SpecError(
            (Complaint("--job", f"the spec has no job {unknown!r}{did_you_mean(unknown, names)}"),),
            hint=f"--job takes one of: {', '.join(sorted(names))}",
        )
    jobs = tuple(job for wave in waves(spec) for job in wave if not only or job.name in only)
    if only:
        _refuse_parts(spec, jobs)
    return jobs


def _refuse_parts(spec: Spec, jobs: Sequence[JobSpec]) -> None:
    """Some of the jobs that have a source or a cut in common, and not all of them."""
    hint, only = "leave out --job, or make a spec of the jobs that move", {job.name for job in jobs}
    for job in jobs:
        left = [other.name for other in sharing(spec, job) if other.name not in only]
        if left:
            raise PlanError(
                f"{job.name!r} shares its source with {left[0]!r}: they move together", hint=hint
            )
    for cut in cuts_of(spec):
        here, left = (
            [name for name in cut.jobs if name in only],
            [name for name in cut.jobs if name not in only],
        )
        if here and left:
            told = ", ".join(map(repr, left))
            raise PlanError(
                (
                    f"{here[0]!r} is stopped at one cut with {told}: by the spec's dataflow "
                    "they move together"
                ),
                hint=hint,
            )


def other_images(job: JobSpec) -> tuple[str, ...]:
    """Images whose state is added to the job's."""
    savepoints = job.flink.existing_savepoints[1:] if job.flink is not None else ()
    return savepoints + tuple(
        at for change in job.transform if change["kind"] == "merge" for at in change["locations"]
    )


def _survey(
    spec: Spec, location: str, doors: Doors, changes: Sequence[Mapping[str, Any]] = ()
) -> Survey:
    """A place beside the job's own; what is to be gone back to is the job's own batch."""
    asked = [change for change in changes if change["kind"] != "rewind"]
    storage, found = engine(spec.engine).survey(location, doors.open_storage, changes=asked)
    return _surveyed(found, storage)


def _surveyed(survey: Survey, storage: Storage) -> Survey:
    traits = storage.traits
    told = {"renames": traits.renames, "keeps_times": traits.keeps_times, "owners": traits.owners}
    told["renames_sooner"] = (
        traits.renames_once and traits.at_once > 1
    )  # than anything new is there
    return replace(survey, traits=told, real=real_location(survey.location))


def _data(kind: Engine, location: str, doors: Doors, ours: bool) -> Survey:
    """A place the job reads or writes: its files; and, where somebody else brought them there,
    whether they know.
    """
    storage = doors.open_storage(location)
    files = tuple(sorted(storage.list()))
    findings = () if ours else kind.misplaced(storage, files)
    return _surveyed(
        Survey(storage.location, None, "data" if files else "empty", files, (), findings), storage
    )


def _cluster_facts(
    spec: Spec, name: str | None, job: JobSpec, doors: Doors, workdir: Workdir, running: bool
) -> ClusterFacts | None:
    if name is None:
        return None
    cluster = doors.open_cluster(spec.cluster(name), workdir)
    if not running:
        found, host = _findings_of_target(cluster), cluster.host(job.connection)
        here = (
            doors.open_cluster(spec.cluster(job.source_cluster), workdir)
            if job.source_cluster
            else None
        )
        found += flink_checks.findings_of_target(cluster, job, here)
        reaches = cluster.reaches(job.destination)
        return ClusterFacts(
            name, cluster.kind, cluster.version(), "unknown", None, found, host, reaches
        )
    ids = (
        {"job_ids": list(job.flink.job_ids)} if job.flink is not None and job.flink.job_ids else {}
    )
    request = StopRequest(job.name, job.source, job.stop.get("tag"), options={**job.stop, **ids})
    status = cluster.find_source(request)
    found = _findings_of_source(spec.cluster(name), job, status)
    if (
        status.state is JobState.UNKNOWN
        and STOPPED in job.waive
        and _cannot_stop_unseen(spec.cluster(name))
    ):
        status = replace(
            status, state=JobState.ABSENT
        )  # somebody has looked, and says that it is stopped
    if job.mode == "warm" and job.takes_savepoints:
        found += _findings_of_checkpoints(cluster, job)
    savable = flink_checks.savable_jobs(cluster, job)
    return ClusterFacts(
        name, cluster.kind, cluster.version(), str(status.state), status.id, found, savable=savable
    )


def _findings_of_target(cluster: Cluster) -> tuple[Finding, ...]:
    """A cluster that knows a job which nobody has submitted would never be given ours."""
    status = cluster.find(NO_TAG)
    if status.state in (JobState.ABSENT, JobState.UNKNOWN):
        return ()
    message = f"{cluster.name} says that a job nobody has submitted is {status.state}"
    return (
        Finding(
            "refuse",
            message,
            hint="its `find` has to answer for the tag it is asked for: $STATESHIFT_TAG",
        ),
    )


def _cannot_stop_unseen(cluster: ClusterSpec) -> bool:
    """Whether it stops what it sees, and nothing else: people and commands are asked to stop a
    job that is unknown.
    """
    from stateshift.clusters.opening import kind_of

    return not kind_of(cluster).stops_unseen


def _can_stop(cluster: ClusterSpec) -> bool:
    from stateshift.clusters.opening import kind_of

    return kind_of(cluster).can_stop(cluster.options)


def _findings_of_source(
    cluster: ClusterSpec, job: JobSpec, status: JobStatus
) -> tuple[Finding, ...]:
    """A running job that cannot be stopped is better known before than after; one that nobody sees
    may run all the same, and would be fenced off while it does.
    """
    if job.moves and status.state is JobState.UNKNOWN and _cannot_stop_unseen(cluster):
        message = f"{cluster.name} cannot tell whether {job.name} runs: {status.detail}"
        hint = (
            'say in `stop` which job it is; or make the source a cluster of kind "command" '
            "that finds and stops it "
            f'(such as `yarn application`); or, where it is stopped, "waive": ["{STOPPED}"]'
        )
        return (Finding("refuse", message, STOPPED, hint),)
    needed = status.state.alive or status.state is JobState.UNKNOWN
    if needed and not _can_stop(cluster):
        message = (
            f"{cluster.name} has no command to stop the job with, and the job is {status.state}"
        )
        return (
            Finding(
                "refuse", message, hint='give the cluster a "stop" command, or stop the job first'
            ),
        )
    return ()


def _findings_of_checkpoints(cluster: Cluster, job: JobSpec) -> tuple[Finding, ...]:
    """A job that is to end with its last checkpoint has to leave it behind."""
    assert job.flink is not None, "only Flink's jobs are followed by their checkpoints"
    ask: Callable[[str], tuple[RunningJob, ...]] | None = getattr(cluster, "running", None)
    found = ask(job.flink.job_ids[0]) if ask is not None else ()
    if any(one.lasting is False and one.state.alive for one in found):
        message = (
            f"the checkpoints of {job.name} are deleted when it is cancelled, and it is to end "
            "with one"
        )
        hint = (
            'start it with "execution.checkpointing.externalized-checkpoint-retention": '
            '"RETAIN_ON_CANCELLATION"; or'
        )
        return (Finding("refuse", message, hint=f'{hint} "mode": "move"'),)
    return ()


def refuse(plans: tuple[Plan, ...]) -> None:
    refusals = [finding for plan in plans for finding in plan.refusals]
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        raise PlanError(refusals[0].message + more, hint=refusals[0].hint)
