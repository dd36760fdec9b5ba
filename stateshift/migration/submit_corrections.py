"""A run that goes on with a corrected spec: of a job's `submit` alone, since all else has been done
by it.

    <workdir>/corrected.json    the corrected spec, which every later command of the run goes by

A plan that was adopted stays as it is: what it says of the start is overridden when the job is
started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stateshift import plain
from stateshift.errors import Complaint, SpecError
from stateshift.extensions import names_added
from stateshift.specification import Spec, SubmitSpec, parse_spec, to_plain_spec
from stateshift.workdir import Workdir
from stateshift.world import Correction

FILE = "corrected.json"
_HOW_FAST = ("parallel", "throttle")  # which flags may have said otherwise when the run began
_SHOWN_MAX = 5


def correct(workdir: Workdir, before: Spec, after: Spec) -> None:
    """Keep the corrected spec, if nothing but how jobs are started differs; else say what does."""
    different = sorted(_differences(_comparable(before), _comparable(after), ""))
    if different:
        more = f" and {len(different) - _SHOWN_MAX} more" if len(different) > _SHOWN_MAX else ""
        names = ", ".join(different[:_SHOWN_MAX]) + more
        raise SpecError(
            (
                Complaint(
                    different[0],
                    f"differs from the spec that the run was begun with (in all: {names})",
                ),
            ),
            hint='only "submit" of a job can be corrected in a run; for anything else: '
            "stateshift rollback WORKDIR, "
            "and apply the new spec",
        )
    workdir.write(FILE, to_plain_spec(after))


def corrections(workdir: Workdir, spec: Spec) -> dict[str, Correction]:
    """How jobs are started otherwise than the run's spec says."""
    value = workdir.read(FILE) if (workdir.path / FILE).exists() else None
    if value is None:
        return {}
    corrected = parse_spec(plain.canonical(value), names_added=names_added)
    found = {}
    for job, now in zip(spec.jobs, corrected.jobs, strict=True):
        if now.submit is not None and now.submit != job.submit:
            before = job.submit or SubmitSpec()
            how = now.submit
            found[job.name] = Correction(
                before.options, how.options, how.environment, how.seconds_max
            )
    return found


def _comparable(spec: Spec) -> dict[str, Any]:
    """The spec, without what may differ."""
    jobs = tuple(replace(job, submit=None, cutover="") for job in spec.jobs)
    value: dict[str, Any] = to_plain_spec(replace(spec, jobs=jobs))
    started = [job.name for job in spec.jobs if job.submit is not None]
    return {**{key: one for key, one in value.items() if key not in _HOW_FAST}, "started": started}


def _differences(one: Any, other: Any, pointer: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in one.keys() | other.keys():
            yield from _differences(one.get(key), other.get(key), f"{pointer}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (here, there) in enumerate(zip(one, other, strict=True)):
            yield from _differences(here, there, f"{pointer}/{number}")
    elif one != other:
        yield pointer or "/"
