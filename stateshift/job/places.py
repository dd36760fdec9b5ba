"""Locations of a job's checkpoint, of its operators' state and of their results: `location`,
`checkpoint`, `results`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.formats import marks, uid
from stateshift.job import files
from stateshift.specification.model import HashProfile, JobSpec, Spec
from stateshift.suggestion import BRACKETED, did_you_mean

# (location, directory) -> the name it was asked for under, in this process
_asked: dict[tuple[str, str], str] = {}


def location(job: str | None = None, spec: Spec | str | None = None) -> str:
    """Return this job's checkpoint location: by its environment, its session or the spec."""
    place, ours = read_setting("CHECKPOINT"), read_setting("JOB")
    means_us = job is None or ours is None or job == ours
    if place and means_us:
        return place
    current = _current(spec)
    if current is None:
        why = "no checkpoint location: there is neither STATESHIFT_CHECKPOINT nor a spec"
        hint = "export STATESHIFT_SPEC=spec.json, or submit the job through stateshift"
        raise SpecError((Complaint("", why),), hint=hint)
    entry = _entry(current, job or ours)
    return entry.destination if current.restart else entry.source


def read_setting(what: str) -> str | None:
    """Return CHECKPOINT, JOB, TAG or a switch, as it was set where the job was started."""
    return os.environ.get(f"STATESHIFT_{what}") or files.setting(f"spark.stateshift.{what.lower()}")


def checkpoint(name: str, job: str | None = None, spec: Spec | str | None = None) -> str:
    """Return the location of the state of the operator of this name. Creates nothing but the entry
    in the index. Refuses a directory that another name has, there or in this process (IS-7).
    """
    place = location(job, spec)
    index: Mapping[str, str] = {}
    if files.reachable(place):
        content = files.read(place, marks.INDEX)
        if content is not None:
            index = marks.decode_index(content, f"{place}/{marks.INDEX}")
    directory = _directory(name, job, _current(spec), index)
    owners = [owner for owner, taken in index.items() if taken == directory]
    owners.append(_asked.get((place, directory), name))
    other = next((owner for owner in owners if owner != name), None)
    if other is not None:
        raise PlanError(
            f"{name!r} and {other!r} both have the directory {directory} below {place}",
            hint='rename one of them, or give one a "directory" in the spec\'s operators',
        )
    _asked[place, directory] = name
    if index.get(name) != directory and files.reachable(place):
        files.write(place, marks.INDEX, marks.encode_index({**index, name: directory}))
    return f"{place.rstrip('/')}/{directory}"


def results(name: str, job: str | None = None, spec: Spec | str | None = None) -> str | None:
    """Return the location of the results of the operator of this name: beside its state in
    production, None elsewhere. The spec says whether it is production; without a spec
    STATESHIFT_PRODUCTION does, or the session's setting spark.stateshift.production.
    """
    current = _current(spec)
    if current is None:
        production = (read_setting("PRODUCTION") or "").lower() == "true"
    else:
        production = current.production
    if not production:
        return None  # and nothing is claimed in the index
    return uid.results_directory(checkpoint(name, job, spec), production)


def _directory(name: str, job: str | None, spec: Spec | None, known: Mapping[str, str]) -> str:
    """Return the spec's directory, else the index's, else the hash: in this order, so that state
    that is there is used again under another hash profile, or where the job does not see the spec.
    """
    operators = () if spec is None else _entry(spec, job or read_setting("JOB")).operators
    given = [operator.directory for operator in operators if operator.name == name]
    if given and given[0] is not None:
        return given[0]
    if known.get(name):
        return known[name]
    profile = HashProfile() if spec is None else spec.uid_hash
    return uid.directory_name(name, profile.p, profile.m, profile.offset, profile.signed)


def _current(spec: Spec | str | None) -> Spec | None:
    path = spec if spec is not None else os.environ.get("STATESHIFT_SPEC") or None
    if not isinstance(path, str):
        return path
    from stateshift.extensions import names_added
    from stateshift.specification import parse_without_dataflow
    from stateshift.specification.written import is_yaml, read_yaml

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        complaint = Complaint("", f"cannot read the spec: {error}", path)
        raise SpecError((complaint,), hint="correct STATESHIFT_SPEC") from error
    folder = str(Path(path).absolute().parent)
    written = read_yaml(text) if is_yaml(path) else text
    try:
        return parse_without_dataflow(
            written, base=folder, environment=os.environ, names_added=names_added
        )
    except SpecError as error:
        if any("--profile" in (each.expected or "") for each in error.complaints):
            error.hint = "a job has no profile: write the location out, in place of NAME:/path"
        raise


def _entry(spec: Spec, name: str | None) -> JobSpec:
    """Return the entry of this name, and no other (IS-3); without a name the only one."""
    names = [entry.name for entry in spec.jobs]
    if name is None and len(names) != 1:
        complaint = Complaint("/jobs", f"which of {', '.join(names)} is this job?")
        raise SpecError((complaint,), hint=f"export STATESHIFT_JOB={names[0]}" if names else None)
    if name is None:
        return spec.jobs[0]
    entry = spec.job(name)
    if entry is None:
        message = f"no job is called {name!r}{did_you_mean(name, names, BRACKETED)}"
        raise SpecError((Complaint("/jobs", message, name, ", ".join(names)),))
    return entry
