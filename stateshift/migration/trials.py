"""The start of a job is tried before the old one is stopped, as far as its cluster allows: a
program that refuses its arguments is found out while it costs nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from typing import cast

from stateshift.clusters.protocol import Submission, Trial, TriesStart
from stateshift.clusters.redaction import last_lines, redact
from stateshift.errors import PlanError
from stateshift.migration.context import RunContext
from stateshift.specification import JobSpec, SubmitSpec
from stateshift.step.marks import tag_of

WAIVER = "submit-trial"
CHECK_SECONDS_MAX = 120.0
_LINES = 10


def try_starts(context: RunContext, jobs: Iterable[JobSpec]) -> None:
    """Try the start of each of these jobs on its target, and where a rollback starts it again.

    Raises:
        PlanError: one is refused. Nothing was stopped.
    """
    for job in jobs:
        if not job.moves:
            continue
        if job.submit is not None and job.target_cluster is not None:
            submission = _submission(context, job, job.submit)
            trial = _checked(job.submit, submission)
            cluster = context.world.cluster(job.target_cluster)
            if not trial.refused and hasattr(cluster, "try_start"):
                trial = cast(TriesStart, cluster).try_start(submission)
            _heed(context, job, cluster.name, trial)
        again = job.source_submit
        if again is not None and job.source_cluster is not None:
            cluster = context.world.cluster(job.source_cluster)
            # Others may have no place for two as long as it runs.
            if cluster.kind == "command" and hasattr(cluster, "try_start"):
                submission = Submission(
                    "", job.name, job.source, None, again.options, again.environment
                )
                _heed(context, job, cluster.name, cast(TriesStart, cluster).try_start(submission))


def _heed(context: RunContext, job: JobSpec, cluster: str, trial: Trial) -> None:
    if trial.untried:
        context.say(f"{job.name}: its start on {cluster} is not tried: {trial.untried}")
    if not trial.refused:
        return
    fact = f"{cluster} refuses to start {job.name}: {trial.refused}"
    if WAIVER in job.waive:
        context.say(f"{fact} (waived: {WAIVER})")
        return
    mend = trial.hint or 'correct "submit" in the spec, and apply it again'
    hint = f'{mend}; nothing was stopped. Where it starts all the same: "waive": ["{WAIVER}"]'
    raise PlanError(fact, hint=hint)


def _submission(context: RunContext, job: JobSpec, submit: SubmitSpec) -> Submission:
    options, environment = submit.options, submit.environment
    correction = context.world.corrections.get(job.name)
    if correction is not None:
        options, environment = correction.applied(options), correction.environment
    tag = tag_of(context.world, job.name)
    return Submission(tag, job.name, job.destination, job.connection, options, environment)


def _checked(submit: SubmitSpec, submission: Submission) -> Trial:
    """Return the trial by the spec's `submit_check`."""
    if submit.check is None:
        return Trial()
    process = subprocess.Popen(
        ["/bin/sh", "-c", submit.check],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            **submission.environment,
            "STATESHIFT_JOB": submission.job,
            "STATESHIFT_CHECKPOINT": submission.location,
            "STATESHIFT_OPTIONS": json.dumps(dict(submission.options), sort_keys=True),
        },
        start_new_session=True,
    )
    with process:
        try:
            said, _ = process.communicate(timeout=CHECK_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return Trial(f"`submit_check` has not ended in {CHECK_SECONDS_MAX:g} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return Trial()
    text = redact(said.decode("utf-8", "replace"), os.environ, submission.environment)
    lines = last_lines(text, _LINES) or "it said nothing"
    return Trial(f"`submit_check` ended with {process.returncode}: {lines}")
