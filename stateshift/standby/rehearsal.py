"""The spec of a drill: a fork of a standby, started in a scratch place, and thrown away.

The job's own `submit` writes to the job's own sink, and is never given to a cluster here. The spec
of the standby says how a drill is started; of a PySpark file that spark-submit starts, a program
can say it: the same file in a local Spark, with its sinks replaced by nothing (`job/one_batch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stateshift.errors import PlanError
from stateshift.formats.standby import STATE
from stateshift.specification import JobSpec, Spec, to_plain_spec
from stateshift.specification.location import relation
from stateshift.specification.model import ClusterSpec, SubmitSpec
from stateshift.specification.standby import spec_at_target
from stateshift.standby.location import Standby, spec_of

SUFFIX = "-drill"
LOCAL = "drill: this machine"
CORES = 2
# Options of a cluster that also hold for another master on the same machine.
KEPT_OPTIONS = ("spark_submit", "java_home", "java_options", "conf", "environment")
# Options of a submission that say where its driver runs.
PLACED = ("deploy_mode",)


def drill_spec(standby: Standby, one_batch: str) -> Spec:
    """Return the spec that rehearses the start of a standby.

    Args:
        standby: which has to be where its state file says that it is, and not be taken over.
        one_batch: the program that runs a PySpark file without its sinks.
    Raises:
        PlanError: as `spec_of`; the job runs there already; or nothing says how a drill is started.
    """
    spec, job = spec_of(standby)
    location = standby.state.location
    if standby.is_taken_over:
        # Another start of it shows nothing that the running job does not, and takes its room.
        raise PlanError(
            f"{location} was taken over by a failover: the job runs there, and is no standby",
            hint="feed a standby of it elsewhere, and rehearse that; "
            f"stateshift fork {location} --to ELSEWHERE copies it",
        )
    cluster, submit = _start_of(spec, job, location, one_batch)
    place = f"{location.rstrip('/')}{SUFFIX}"
    if job.drill is not None and job.drill.location is not None:
        place = job.drill.location
    fork = replace(
        JobSpec(job.name, location, place),
        operators=job.operators,
        transform=job.transform,
        target_cluster=cluster.name,
        submit=submit,
        kafka=job.kafka,
        sources=job.sources,
        also=job.also,
        waive=job.waive,
        flink=job.flink,
        mode="fork",
        rehearses=True,
    )
    made = Spec(engine=spec.engine, jobs=(fork,), clusters=(cluster,), uid_hash=spec.uid_hash)
    return replace(made, on_failure="stop")


def with_spec(standby: Standby, given: Spec) -> Standby:
    """Return a standby as if it was fed by this spec.

    Raises:
        PlanError: no job of it is copied there.
    """
    location = standby.state.location
    for job in given.jobs:
        if job.target is not None and relation(job.target, location) == "same":
            spec = to_plain_spec(spec_at_target(given, job, standby.state.run))
            return replace(standby, state=replace(standby.state, spec=spec))
    raise PlanError(
        f"no job of the spec is copied to {location}",
        hint=f"the spec of the standby: its job has {location} as `remote_location`",
    )


def _start_of(
    spec: Spec, job: JobSpec, location: str, one_batch: str
) -> tuple[ClusterSpec, SubmitSpec]:
    """Return the cluster on which a drill is started, and how."""
    if job.drill is not None and job.drill.submit is not None:
        assert job.drill_cluster is not None, "the spec was checked"
        return spec.cluster(job.drill_cluster), job.drill.submit
    path = f"{location.rstrip('/')}/{STATE}"
    if job.drill is None:
        raise _refusal(f"the spec in {path} has no `drill`")
    if spec.engine != "spark":
        raise _refusal(f"the spec in {path} has no `drill.submit`, which a job of Flink needs")
    if job.submit is None or job.target_cluster is None:
        raise _refusal(f"{path} does not say how {job.name} is started")
    cluster, options = spec.cluster(job.target_cluster), job.submit.options
    application = str(options.get("application", ""))
    if cluster.kind != "spark_submit" or not application.endswith(".py"):
        raise _refusal(
            f"{job.name} is no PySpark file that spark-submit starts on this machine: its sink "
            "cannot be replaced"
        )
    kept = {name: cluster.options[name] for name in KEPT_OPTIONS if name in cluster.options}
    local = {**kept, "master": f"local[{CORES}]", "deploy_mode": "client"}
    submit = _in_local_spark(job.submit, application, one_batch)
    return ClusterSpec(LOCAL, "spark_submit", local), submit


def _refusal(fact: str) -> PlanError:
    return PlanError(
        fact,
        hint="say in the standby's spec how a drill is started, so that its output goes "
        'elsewhere: "drill": {"submit": {...}}; of a PySpark file that spark-submit starts, '
        '"drill": {} is enough. Where the standby is fed already: stateshift drill LOCATION '
        "--spec FILE",
    )


def _in_local_spark(submit: SubmitSpec, application: str, one_batch: str) -> SubmitSpec:
    options: Mapping[str, object] = submit.options
    others = {name: value for name, value in options.items() if name not in PLACED}
    arguments = options.get("arguments") or ()
    assert isinstance(arguments, list | tuple), "the cluster has checked them"
    others |= {"application": one_batch, "arguments": [application, *arguments]}
    return replace(submit, options=others, prepare=False, check=None)
