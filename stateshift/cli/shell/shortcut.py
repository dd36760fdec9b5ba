"""The common part of the one-job shortcuts: each writes a spec, and runs it through plan and apply
as any other.

    compact, repartition, convert, rename, rewind, merge,  one job, whose `transform` is what the
                                                           command is called
    evolve
    gather                                                 one job without any: a Flink image in one
                                                           folder
    split                                                  one job a part
    fork                                                   one job, in mode fork
    move                                                   one job, and the clusters it names

The spec is kept in the run's workdir; what a shortcut cannot say, a spec can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

import typer

from stateshift.cli.shell.options import Command, CopyOptions, RunOptions, command, overridden
from stateshift.errors import Complaint, PlanError, SpecError

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal

Keys = dict[str, object]  # of a spec, or of a part of one
Changes = Sequence[Keys]


def shortcut(
    example: str,
    e0: str = "the new image is at its target",
    e7: str | None = "the fleet failed",
    stops_jobs: bool = False,
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function a shortcut; `e7` is None if neither cluster nor fleet takes part."""
    clusters = () if e7 is None else (7,)
    return command(
        example,
        (2, 3, 4, 5, 6, *clusters, 8, *((10,) if stops_jobs else ()), 130),
        e0=e0,
        e4="refused before anything changed (also a damaged source, and a no); or stale: roll the "
        "run back",
        e7=e7 or "",
        e8="another run holds the target or the workdir",
        e130="interrupted: `stateshift resume WORKDIR` continues",
    )


def one_job(source: str, target: str | None, changes: Changes, options: CopyOptions) -> Keys:
    """Return a job of a spec, called as its place: the new one, or its own if it has no target.
    Without --fork it moves, and after a move nothing else is left: its copy is synced.
    """
    from stateshift.storage.locations import job_name

    if options.no_sync and not options.fork:
        raise typer.BadParameter(
            "--no-sync needs --fork: what a job goes on from has to be on disk"
        )
    job: Keys = {"name": job_name(target or source), "checkpoint_location": source}
    if target:
        job["remote_location"] = target
    if options.fork:
        job["mode"] = "fork"
    if options.no_sync:
        job["sync"] = False
    if changes:
        job["transform"] = list(changes)
    if options.waive:
        job["waive"] = options.waive
    return job


def drop_empty(**values: object) -> Keys:
    """Return the keys that somebody gave a value for: no None, and no empty list or mapping."""
    return {key: value for key, value in values.items() if value not in (None, [], {})}


def pairs(flag: str, form: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Return the mapping of a flag that may come several times, in a `form` such as OLD=NEW."""
    mapped: dict[str, str] = {}
    for text in texts or ():
        old, _, new = text.partition("=")
        is_pair = bool(old and new)
        if not is_pair or old in mapped:
            key = form.partition("=")[0]
            raise typer.BadParameter(f"{flag} takes {form}, each {key} once; not {text!r}")
        mapped[old] = new
    return mapped


def run_jobs(
    terminal: Terminal,
    options: RunOptions,
    jobs: Sequence[Keys],
    only: str | None = None,
    clusters: Keys | None = None,
) -> int:
    """Plan, show, ask, apply, report. `only` is the shortcut's one engine, `clusters` the jobs'."""
    from stateshift.api.requests import in_profile
    from stateshift.cli.shell.launch import Request, launch
    from stateshift.extensions import names_added
    from stateshift.specification import parse_spec
    from stateshift.specification.text import protect, read_json

    engine = _engine(str(jobs[0]["checkpoint_location"]), terminal, only)
    try:
        plain: Keys = {"version": 1, "engine": engine, "jobs": protect(jobs)}
        if clusters:
            plain["clusters"] = protect(clusters)
        spec = in_profile(
            read_json(json.dumps(plain)),
            lambda written: parse_spec(written, base=os.getcwd(), names_added=names_added),
        )
        spec = overridden(spec, options.parallel, options.throttle)
        return launch(terminal, options, Request(spec, typed=True))
    except SpecError as error:
        complaints = tuple(_as_typed(each, jobs) for each in error.complaints)
        hint = error.hint or ""
        if len(complaints) == 1 and hint.startswith('"'):  # the sentence of its key in a spec
            hint = f"{complaints[0].pointer}{hint[hint.index(':') :]}"
        raise SpecError(complaints, hint=hint or None) from error


def _as_typed(complaint: Complaint, jobs: Sequence[Keys]) -> Complaint:
    """Return a complaint about a spec that nobody has written as one about the option."""
    area, _, rest = complaint.pointer.strip("/").partition("/")
    number, *names = rest.split("/")
    if area == "clusters":
        return replace(complaint, pointer=_OPTIONS.get("/".join(names), complaint.pointer))
    if area != "jobs" or not names:
        return complaint
    if names[0] != "transform" or len(names) < 3:
        option = _OPTIONS.get(names[0], _flag(names[0]))
        return replace(complaint, pointer=option)
    changes = jobs[int(number)]["transform"]
    assert isinstance(changes, list), "as one_job makes them"
    name = f"{changes[int(names[1])]['kind']}/{names[2]}"
    return replace(complaint, pointer=_OPTIONS.get(name, _flag(names[2])))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# The options that are not called as their keys are: of a job, of a change, of a cluster.
_OPTIONS = {
    "checkpoint_location": "LOCATION",
    "remote_location": "--to",
    "name": "--to",
    "transform": "LOCATION",
    "submit": "--start",
    "target_cluster": "--start",
    "source_cluster": "--stop",
    "source_submit": "--restart",
    "rename/operators": "--operator",
    "rename/sources": "--source",
    "drop/operators": "--drop-operator",
    "drop/sources": "--drop-source",
    "reposition/topics": "--topic",
    "reposition/as_of": "--as-of",
    "kafka": "--to-brokers",
    "merge/locations": "OTHER",
    "union/operators": "--union",
    "split/by": "--to",
    "split/part": "--to",
}


def _engine(location: str, terminal: Terminal, only: str | None) -> str:
    """Return the engine of the image there. The plan says so if there is none."""
    from stateshift.engines.registry import folder_meant, recognise
    from stateshift.storage import locations

    opening = terminal.opening()
    folder = folder_meant(locations.normal(location, os.getcwd()), opening)
    engine = recognise(opening(folder))
    if only is None:
        return engine or "spark"
    if engine not in (None, only):
        hint = f"stateshift inspect {quote(location)}"
        raise PlanError(f"{location} holds no image of {only.capitalize()}", hint=hint)
    return only
