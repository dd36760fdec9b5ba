"""The JSON documents of every command: values in, plain dictionaries out. Pure.

Names and shapes are a promise to CI steps and cron lines: keys are added freely, and changed only with a reason.
Locations and messages come without the credentials that somebody may have put into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.errors import StateshiftError
    from stateshift.look import Judgement, Look, ShownEntry
    from stateshift.migration import Proposal, Verdict
    from stateshift.plan import Phase, Plan
    from stateshift.report import JobReport, PhaseReport, Report
    from stateshift.survey import Finding, Image, Operator, Survey

# Files below each of these many bytes are counted: what 6.2.3 of INFORE's D5.2 found to dominate a move.
SMALL = (4 * 1024, 64 * 1024, 1024 * 1024)


def error(caught: StateshiftError) -> dict[str, Any]:
    """Every error has `error`, `message`, `hint` and `exit_code`; where it happened, as far as it is known, too."""
    return {key: _redacted(value) for key, value in caught.as_json().items()}


def finding(found: Finding) -> dict[str, Any]:
    return {
        "level": found.level,
        "message": redact(found.message),
        "path": found.path,
        "offset": found.offset,
        "hint": found.hint and redact(found.hint),
        "waive": found.waive,
    }


# ---- inspect, verify --------------------------------------------------------------------------------------------


def look(seen: Look, location: str) -> dict[str, Any]:
    """What `inspect` found: a directory's survey, or one file decoded."""
    if seen.survey is not None:
        return survey(seen.survey)
    assert seen.file is not None, "a look is at a directory or at a file"
    return {
        "location": redact(location),
        "engine": None,
        "kind": "file",
        "epoch": None,
        "epochs": [],
        "operators": [],
        "files": {"count": 1, "bytes": None, "needed": {"count": 0, "bytes": 0}},
        "paths": [],
        "warnings": [],
        "format": seen.file.format,
        "content": seen.file.value,
    }


def survey(found: Survey) -> dict[str, Any]:
    only = found.images[0] if len(found.images) == 1 else None
    return {
        "location": redact(found.location),
        "engine": found.engine,
        "kind": found.kind,
        "epoch": only.epoch if only else None,
        "epochs": list(only.epochs) if only else [],
        "operators": [operator(o, i) for i in found.images for o in i.operators],
        "files": files(found),
        "paths": [
            {"file": e.file, "path": redact(e.path), "count": e.count, "role": e.role}
            for i in found.images
            for e in i.embedded
        ],
        "warnings": [finding(f) for f in findings_of(found)],
        "images": [image(i) for i in found.images],
        "names": dict(found.names),
    }


def findings_of(found: Survey) -> tuple[Finding, ...]:
    return (*found.findings, *(f for image in found.images for f in image.findings))


def files(found: Survey) -> dict[str, Any]:
    sizes = [file.size for file in found.files]
    needed = needed_files(found)
    by_path = {file.path: file.size for file in found.files}
    return {
        "count": len(sizes),
        "bytes": sum(sizes),
        "needed": {"count": len(needed), "bytes": sum(by_path.get(path, 0) for path in needed)},
        "small": [
            {"below": below, "count": len(some), "bytes": sum(some)}
            for below in SMALL
            for some in [[size for size in sizes if size < below]]
        ],
    }


def needed_files(found: Survey) -> frozenset[str]:
    """Every path, relative to the location, that a restart reads."""
    return frozenset(path for image in found.images for path in image.needed)


def file_rows(found: Survey) -> list[dict[str, Any]]:
    needed = needed_files(found)
    return [
        {"path": f.path, "bytes": f.size, "modified": f.modified, "needed": f.path in needed} for f in found.files
    ]


def operator(found: Operator, of: Image) -> dict[str, Any]:
    return {
        "image": of.path,
        "id": found.id,
        "name": found.name or of.name,
        "uid": found.uid or of.name,
        "provider": found.provider,
        "shards": found.shards,
        "stores": [{"name": s.name, "files": s.files, "bytes": s.bytes} for s in found.stores],
    }


def image(found: Image) -> dict[str, Any]:
    return {
        "path": found.path,
        "name": found.name,
        "id": found.identity,
        "epoch": found.epoch,
        "planned": found.planned,
        "epochs": list(found.epochs),
        "needed": len(found.needed),
        "written_by": found.written_by,
        "fence": found.fence,
        "endpoints": [
            {
                "role": e.role,
                "index": e.index,
                "kind": e.kind,
                "replayable": e.replayable,
                "detail": e.detail and redact(e.detail),
            }
            for e in found.endpoints
        ],
        "settings": dict(found.settings),
    }


def entry(shown: ShownEntry) -> dict[str, Any]:
    return {
        "operator": shown.operator,
        "store": shown.store,
        "shard": shown.shard,
        "key": shown.key,
        "value": shown.value,
    }


def judgement(found: Judgement) -> dict[str, Any]:
    return {
        "restartable": found.restartable,
        "epoch": found.epoch,
        "epochs": list(found.epochs),
        "findings": [finding(f) for f in found.findings],
    }


def verdict(found: Verdict, report: Report, workdir: str) -> dict[str, Any]:
    """`verify WORKDIR`, in the words of `verify LOCATION`; a finding here is a step whose evidence does not hold."""
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
    notes = [{"level": "note", "message": redact(n), "path": None, "offset": None, "hint": None} for n in found.notes]
    return {
        "holds": not found.broken,
        "restartable": not found.broken,
        "epoch": None,
        "findings": broken + notes,
        "run": report.run,
        "state": report.state,
        "workdir": workdir,
    }


# ---- plan -------------------------------------------------------------------------------------------------------


def proposal(proposed: Proposal, verbose: bool = False) -> dict[str, Any]:
    """All plans as one list of phases in the order they run, and each plan by itself."""
    return {
        "fingerprint": proposed.fingerprint,
        "phases": [{**phase(p, verbose), "job": plan.job} for plan in proposed.plans for p in plan.phases],
        "estimate": estimate(proposed.plans),
        "findings": [{**finding(f), "job": plan.job} for plan in proposed.plans for f in plan.findings],
        "plans": [one_plan(plan) for plan in proposed.plans],
    }


def phase(planned: Phase, verbose: bool = False) -> dict[str, Any]:
    counted = {
        "name": planned.name, "steps": len(planned.steps), "files": planned.files, "bytes": planned.bytes,
    }  # fmt: skip
    if not verbose:
        return counted
    details = [
        {"name": s.name, "kind": s.kind, "does": redact(s.describe()), "files": s.files, "bytes": s.bytes}
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
    }


def estimate(plans: Iterable[Plan]) -> dict[str, Any] | None:
    """Jobs move one after the other, and each is down for its own plans only. None where no plan has steps."""
    by_job: dict[str, float] = {}
    seconds, basis = 0.0, None
    for plan in plans:
        if plan.estimate is None or not plan.phases:
            continue
        seconds += plan.estimate.seconds
        by_job[plan.job] = by_job.get(plan.job, 0.0) + plan.estimate.downtime_seconds
        basis = plan.estimate.basis
    if basis is None:
        return None
    return {"seconds": round(seconds, 2), "downtime_seconds": round(max(by_job.values()), 2), "basis": basis}


# ---- runs -------------------------------------------------------------------------------------------------------


def run(told: Report, workdir: str, held: bool = False) -> dict[str, Any]:
    """What `apply`, `resume`, `rollback` and `status` print."""
    return {
        "run": told.run,
        "state": shown_state(told.state, held),
        "report": {
            "downtime_seconds": told.downtime_seconds,
            "seconds": told.seconds,
            "phases": [_phase_report(p) for p in told.phases],
            "jobs": [_job_report(job) for job in told.jobs],
            "left": [redact(line) for line in told.left],
        },
        "workdir": workdir,
    }


def failed_run(told: Report, workdir: str, held: bool, caught: StateshiftError) -> dict[str, Any]:
    """A run that stopped on the way: where it stands and why, in one document."""
    return {**error(caught), **run(told, workdir, held)}


def status(told: Report, workdir: str, held: bool) -> dict[str, Any]:
    failure = told.failure
    return {
        **run(told, workdir, held),
        "at_work": held,
        "failure": None
        if failure is None
        else {
            "error": failure.error,
            "message": redact(failure.message),
            "hint": failure.hint and redact(failure.hint),
            "exit_code": failure.exit_code,
            "step": failure.step,
        },
    }


def shown_state(state: str, held: bool) -> str:
    """A run that its journal leaves at work, and no process works on, was killed: it is to be resumed."""
    return "interrupted" if state == "running" and not held else state


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
        "idle": told.idle,
        "notes": [redact(note) for note in told.notes],
        "left": [redact(line) for line in told.left],
        "phases": [_phase_report(p) for p in told.phases],
    }


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return value if value is None or isinstance(value, int | float) else str(value)
