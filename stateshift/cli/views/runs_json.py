"""The JSON documents of plans and runs: values in, plain dictionaries out. Pure.

Names and shapes are a promise, as those in `as_json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stateshift import plain
from stateshift.cli.views import images_json as as_json
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.errors import StateshiftError
    from stateshift.migration import Proposal, Verdict
    from stateshift.plan import Phase, Plan
    from stateshift.report import FailureReport, JobReport, PhaseReport, Report
    from stateshift.steering import Live

# ---- plan ----------------------------------------------------------------------------------------


def proposal(proposed: Proposal, verbose: bool = False) -> dict[str, Any]:
    """All plans as one list of phases in the order they run, and each plan by itself."""
    return {
        "fingerprint": proposed.fingerprint,
        "phases": [
            {**phase(p, verbose), "job": plan.job} for plan in proposed.plans for p in plan.phases
        ],
        "estimate": estimate(proposed),
        "waves": [list(wave) for wave in waves(proposed)],
        "cuts": cuts(proposed),
        "findings": [
            {**as_json.finding(f), "job": plan.job}
            for plan in proposed.plans
            for f in plan.findings
        ],
        "plans": [one_plan(plan) for plan in proposed.plans],
    }


def phase(planned: Phase, verbose: bool = False) -> dict[str, Any]:
    counted = {
        "name": planned.name,
        "steps": len(planned.steps),
        "files": planned.files,
        "bytes": planned.bytes,
    }
    if not verbose:
        return counted
    details = [
        {
            "name": s.name,
            "kind": s.kind,
            "does": redact(s.describe()),
            "files": s.files,
            "bytes": s.bytes,
        }
        for s in planned.steps
    ]
    return {**counted, "details": details}


def one_plan(plan: Plan) -> dict[str, Any]:
    return {
        "job": plan.job,
        "engine": plan.engine,
        "purpose": plan.purpose,
        "source": redact(plan.source),
        "target": redact(plan.target),
        "epoch": plan.epoch,
        "provisional": plan.provisional,
        "fingerprint": plan.fingerprint,
        "files": plan.files,
        "bytes": plan.bytes,
        "phases": [p.name for p in plan.phases],
        "endpoints": [as_json.endpoint(end) for end in plan.endpoints],
    }


def waves(proposed: Proposal) -> list[tuple[str, ...]]:
    """The jobs that move together, by name, in their order."""
    from stateshift import migration

    planned = {plan.job for plan in proposed.plans}
    named = (
        tuple(job.name for job in wave if job.name in planned)
        for wave in migration.waves(proposed.spec)
    )
    return [wave for wave in named if wave]


def cuts(proposed: Proposal) -> list[dict[str, Any]]:
    """Which of the jobs are stopped at one cut, by the spec's dataflow; `stops` are those that the
    run itself stops, `blind` those that are stopped whether they have read what the others wrote or
    not: nobody can ask them, or they feed each other (`ring`).
    """
    from stateshift import migration

    spec = proposed.spec
    stops = [plan.job for plan in proposed.plans if plan.purpose == "halt"]
    return [
        {
            "jobs": list(cut.jobs),
            "order": [list(part) for part in cut.order],
            "ring": list(cut.ring),
            "joints": [list(ends) for ends in cut.joints],
            "between": list(cut.between),
            "stops": [name for name in cut.jobs if name in stops],
            "blind": [
                job.name
                for job in spec.jobs
                if job.name in stops
                and job.name not in cut.ring
                and any(job.name in part for part in cut.order[1:])
                and not migration.reads_out(spec, job)
            ],
        }
        for cut in migration.cuts_of(spec, [plan.job for plan in proposed.plans])
    ]


def estimate(proposed: Proposal) -> dict[str, Any] | None:
    """Waves follow each other, and a job is down while its own is under way. None where no plan
    has steps.
    """
    seconds, down, basis = 0.0, [0.0], None
    for wave in waves(proposed):
        told = [
            plan.estimate
            for plan in proposed.plans
            if plan.job in wave and plan.estimate and plan.phases
        ]
        seconds += sum(one.seconds for one in told)
        down.append(sum(one.downtime_seconds for one in told))
        basis = next((one.basis for one in told), basis)
    if basis is None:
        return None
    return {"seconds": round(seconds, 2), "downtime_seconds": round(max(down), 2), "basis": basis}


# ---- runs ----------------------------------------------------------------------------------------


def run(told: Report, workdir: str, held: bool = False) -> dict[str, Any]:
    """What `status` prints, and `apply`, `resume` and `rollback` with the page that they leave."""
    return {
        "run": told.run,
        "state": shown_state(told.state, held),
        "report": {
            "downtime_seconds": told.downtime_seconds,
            "seconds": told.seconds,
            "phases": [_phase_report(p) for p in told.phases],
            "jobs": [_job_report(job) for job in told.jobs],
            "left": [redact(line) for line in told.left],
            "steered": [plain.to_plain(one) for one in told.steered],
        },
        "workdir": workdir,
    }


def ended_run(told: Report, workdir: str, page: str | None, held: bool = False) -> dict[str, Any]:
    """What `apply`, `resume` and `rollback` print; `page` is None where it could not be written."""
    return {**run(told, workdir, held), "report_html": page}


def failed_run(
    told: Report, workdir: str, page: str | None, held: bool, caught: StateshiftError
) -> dict[str, Any]:
    """A run that stopped on the way: where it stands and why, in one document."""
    return {**as_json.error(caught), **ended_run(told, workdir, page, held)}


def status(
    told: Report, workdir: str, held: bool, live: Live | None = None, page: str | None = None
) -> dict[str, Any]:
    now = {"at_work": held, "failure": _failure(told.failure), "live": at_work(live)}
    return {**ended_run(told, workdir, page, held), **now}


def at_work(live: Live | None) -> dict[str, Any] | None:
    """What the process at work is at, and what is still to be brought of each job that it
    follows.
    """
    if live is None:
        return None
    told = plain.to_plain(live)
    down = max((one.seconds for one in live.left.values()), default=None)
    return {**told, "waiting": live.waiting or None, "downtime_seconds": down}


def _failure(failed: FailureReport | None) -> dict[str, Any] | None:
    if failed is None:
        return None
    return {
        "error": failed.error,
        "message": redact(failed.message),
        "hint": failed.hint and redact(failed.hint),
        "exit_code": failed.exit_code,
        "step": failed.step,
    }


def shown_state(state: str, held: bool) -> str:
    """A run that its journal leaves at work, and no process works on, was killed: it is to be
    resumed.
    """
    return "interrupted" if state == "running" and not held else state


def verdict(found: Verdict, report: Report, workdir: str) -> dict[str, Any]:
    """`verify WORKDIR`, in the words of `verify LOCATION`; a finding here is a step whose evidence
    does not hold. A job can restart from what a run has finished, at the epoch it was brought at;
    `epochs` has those of several jobs.
    """
    broken = [
        {
            "level": "refuse",
            "message": redact(f"expected {b.discrepancy.expected}, found {b.discrepancy.found}"),
            "path": redact(b.discrepancy.place),
            "offset": None,
            "hint": None,
            "plan": b.plan,
            "step": b.step,
        }
        for b in found.broken
    ]
    notes = [
        {"level": "note", "message": redact(n), "path": None, "offset": None, "hint": None}
        for n in found.notes
    ]
    return {
        "holds": not found.broken,
        "restartable": found.finished and not found.broken,
        "epoch": next(iter(found.epochs.values())) if len(found.epochs) == 1 else None,
        "epochs": dict(found.epochs),
        "findings": broken + notes,
        "run": report.run,
        "state": report.state,
        "workdir": workdir,
    }


def _phase_report(told: PhaseReport) -> dict[str, Any]:
    return {
        "name": told.name,
        "start": told.start,
        "seconds": told.seconds,
        "steps": told.steps,
        "done": told.done,
        "files": told.files,
        "bytes": told.bytes,
    }


def _job_report(told: JobReport) -> dict[str, Any]:
    return {
        "job": told.job,
        "state": told.state,
        "files": told.files,
        "bytes": told.bytes,
        "downtime_seconds": told.downtime_seconds,
        "downtime_from": told.downtime_from,
        "entries": told.entries,
        "compared": told.compared,
        "idle": told.idle,
        "notes": [redact(note) for note in told.notes],
        "left": [redact(line) for line in told.left],
        "failure": _failure(told.failure),
        "phases": [_phase_report(p) for p in told.phases],
        "rounds": [plain.to_plain(one) for one in told.rounds],
        "downtime_without_rounds": told.downtime_without_rounds,
    }
