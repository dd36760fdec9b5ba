"""Corrected specs of runs that go on: only a job's `submit` can differ, since all else has been
done by the spec.

    <workdir>/corrected.json    the corrected spec, which every later command of the run goes by

An adopted plan stays as it is: the correction overrides it when the job is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stateshift import plain
from stateshift.errors import Complaint, SpecError
from stateshift.extensions import names_added
from stateshift.specification import JobSpec, Spec, SubmitSpec, parse_spec, to_plain_spec
from stateshift.workdir import Workdir
from stateshift.world import Correction

FILE = "corrected.json"
_HOW_FAST = ("parallel", "throttle")  # which flags may have said otherwise when the run began
_SHOWN_MAX = 5


def correct(workdir: Workdir, before: Spec, after: Spec) -> None:
    """Keep the corrected spec, if only the start of jobs differs; else refuse what differs."""
    different = sorted(_differences(_comparable(before), _comparable(after), ""))
    if different:
        more = f" and {len(different) - _SHOWN_MAX} more" if len(different) > _SHOWN_MAX else ""
        names = ", ".join(different[:_SHOWN_MAX]) + more
        fact = f"differs from the spec that the run was begun with (in all: {names})"
        raise SpecError(
            (Complaint(different[0], fact),),
            hint='only "submit" of a job can be corrected in a run, no cluster and no place; for '
            "anything else: stateshift rollback WORKDIR, and apply the new spec",
        )
    workdir.write(FILE, to_plain_spec(after))


def read_started_jobs(workdir: Workdir) -> dict[str, JobSpec]:
    """Return the jobs of a run by their names, as it has started them."""
    corrected = (workdir.path / FILE).exists()
    value = workdir.read(FILE if corrected else "spec.json")
    spec = parse_spec(plain.canonical(value), names_added=names_added)
    return {job.name: job for job in spec.jobs}


def corrections(workdir: Workdir, spec: Spec) -> dict[str, Correction]:
    """Return the corrections of a run by the names of the jobs."""
    value = workdir.read(FILE) if (workdir.path / FILE).exists() else None
    if value is None:
        return {}
    corrected = parse_spec(plain.canonical(value), names_added=names_added)
    corrections = {}
    for job, corrected_job in zip(spec.jobs, corrected.jobs, strict=True):
        after = corrected_job.submit
        if after is not None and after != job.submit:
            before = job.submit.options if job.submit is not None else SubmitSpec().options
            corrections[job.name] = Correction(
                before, after.options, after.environment, after.seconds_max
            )
    return corrections


def _comparable(spec: Spec) -> dict[str, object]:
    """Return the spec without the keys that may differ."""
    jobs = tuple(replace(job, submit=None, cutover="") for job in spec.jobs)
    value: dict[str, object] = dict(to_plain_spec(replace(spec, jobs=jobs)))
    for key in _HOW_FAST:
        value.pop(key, None)
    value["started"] = [job.name for job in spec.jobs if job.submit is not None]
    return value


def _differences(one: object, other: object, pointer: str) -> Iterator[str]:
    """Yield pointers to where two plain values differ."""
    for key, value, counterpart in _pairs(one, other):
        yield from _differences(value, counterpart, f"{pointer}/{key}")
    if one != other and not _pairs(one, other):
        yield pointer or "/"


def _pairs(one: object, other: object) -> list[tuple[object, object, object]]:
    """Return the pairs inside two values, with their keys; none if they are compared whole."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = one.keys() | other.keys()
        return [(key, one.get(key), other.get(key)) for key in keys]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [(i, one[i], other[i]) for i in range(len(one))]
    return []
