"""What the user hands in: a spec, or a plan that was saved. Read from a local file."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import replace
from shlex import quote

from stateshift.cli.shell.local_files import beside, text_of
from stateshift.cli.views.units import rate
from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.extensions import names_added
from stateshift.migration import Proposal, decode_proposal, with_dataflow
from stateshift.specification import Spec, parse_spec
from stateshift.specification.warm import NEVER


def read(path: str) -> Spec | Proposal:
    """A saved plan says so in its first key; anything else is read as a spec. What is wrong with
    it names the file.
    """
    try:
        return _read(path)
    except (SpecError, PlanError) as error:
        error.where["path"] = path
        raise


def _read(path: str) -> Spec | Proposal:
    text = _text(path)
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        plain = None  # the spec's reader says better than we could what is wrong, and where
    if isinstance(plain, dict) and "stateshift_plan" in plain:
        return decode_proposal(plain)
    folder = os.path.dirname(os.path.abspath(path))
    spec = parse_spec(text, base=folder, environment=os.environ, names_added=names_added)
    return with_dataflow(spec, beside(path))


def spec_in(path: str) -> Spec:
    """A spec, and no plan."""
    found = read(path)
    if isinstance(found, Proposal):
        raise SpecError(
            (Complaint("", "a saved plan, and not a spec"),),
            hint="name the spec that it was made from",
        )
    return found


def overridden(spec: Spec, parallel: int | None, throttle: str | None) -> Spec:
    """The spec under the flags and settings that say how hard to work; never what to do."""
    if parallel is not None:
        spec = replace(spec, parallel=parallel)
    return spec if throttle is None else replace(spec, bytes_per_second=rate(throttle))


def kept_fresh(spec: Spec, only: Collection[str]) -> Spec:
    """The spec of a run that never stops its jobs: what it has brought of them can be started
    from at any time.
    """
    for job in spec.jobs:
        if (not only or job.name in only) and job.mode != "warm":
            raise PlanError(
                f"{job.name} is not brought over while it runs", hint='"mode": "warm" in the spec'
            )
    jobs = tuple(replace(job, cutover=NEVER) if job.mode == "warm" else job for job in spec.jobs)
    return replace(spec, jobs=jobs)


def _text(path: str) -> str:
    if os.path.isdir(path):
        run = os.path.exists(os.path.join(path, "journal"))
        hint = f"stateshift {'resume' if run else 'inspect'} {quote(path)}"
        raise SpecError((Complaint("", "a directory, and not a spec"),), hint=hint)
    return text_of(path, "name a spec (stateshift schema tells what it holds) or a saved plan")
