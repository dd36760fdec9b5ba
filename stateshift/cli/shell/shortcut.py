"""What the one-job shortcuts have in common: each writes a spec, and runs it through plan and apply
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

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from stateshift.cli.shell.options import RunOptions, epilog

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.specification import Spec


def ending(
    example: str, e0: str = "the new image is at its target", e7: str = "the fleet failed"
) -> str:
    """Return the end of a shortcut's help."""
    return epilog(
        example,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        130,
        e0=e0,
        e4="refused before anything changed, or found not to fit later: roll the run back",
        e7=e7,
        e8="another run holds the target or the workdir",
        e130="interrupted: `stateshift resume WORKDIR` continues",
    )


def one_job(
    source: str,
    target: str,
    changes: Sequence[Mapping[str, Any]],
    waive: list[str] | None,
    fork: bool,
) -> dict[str, Any]:
    """A job of a spec. It is called as its new place is."""
    return {
        "name": target.rstrip("/").rpartition("/")[2] or "job",
        "checkpoint_location": source,
        "remote_location": target,
        **({"transform": list(changes)} if changes else {}),
        **({"mode": "fork"} if fork else {}),
        **({"waive": waive} if waive else {}),
    }


def in_place_job(
    source: str, changes: Sequence[Mapping[str, Any]], waive: list[str] | None
) -> dict[str, Any]:
    """A job that stays where it is."""
    return {
        "name": source.rstrip("/").rpartition("/")[2] or "job",
        "checkpoint_location": source,
        "transform": list(changes),
        **({"waive": waive} if waive else {}),
    }


def pairs(flag: str, form: str, given: Sequence[str] | None) -> dict[str, str]:
    """What a flag that may come several times maps to what; `form` is how it is written, as in
    OLD=NEW.
    """
    found: dict[str, str] = {}
    for pair in given or ():
        old, equals, new = pair.partition("=")
        if not (old and equals and new) or old in found:
            raise typer.BadParameter(
                f"{flag} takes {form}, each {form.partition('=')[0]} once; not {pair!r}"
            )
        found[old] = new
    return found


def carry(
    terminal: Terminal,
    options: RunOptions,
    jobs: Sequence[Mapping[str, Any]],
    only: str | None = None,
    clusters: Mapping[str, Any] | None = None,
) -> int:
    """Plan, show, ask, apply, report.

    `only` is the engine whose images the shortcut is for, if not for all; `clusters` are those
    that the jobs name.
    """
    from stateshift.cli.shell.launch import launch
    from stateshift.cli.shell.request import Request, overridden

    engine = _engine(jobs[0]["checkpoint_location"], terminal, only)
    spec = overridden(_spec(jobs, engine, clusters), options.parallel, options.throttle)
    return launch(terminal, options, Request(spec, typed=True))


def _engine(location: str, terminal: Terminal, only: str | None) -> str:
    """Whose image lies there. What is none is for the plan to say."""
    from stateshift.engines.registry import folder_meant, recognised
    from stateshift.errors import PlanError
    from stateshift.storage import locations

    opening = terminal.opening()
    found = recognised(opening(folder_meant(locations.normal(location, os.getcwd()), opening)))
    if only is not None and found is not None and found != only:
        hint = f"stateshift inspect {quote(location)}"
        raise PlanError(f"{location} holds no image of {only.capitalize()}", hint=hint)
    return found or only or "spark"


def _spec(
    jobs: Sequence[Mapping[str, Any]], engine: str, clusters: Mapping[str, Any] | None
) -> Spec:
    import json

    from stateshift.extensions import names_added
    from stateshift.specification import parse_spec
    from stateshift.specification.text import protect

    def literal(value: Any) -> Any:
        if isinstance(value, str):
            return protect(value)  # what is typed is meant as it is
        if isinstance(value, Mapping):
            return {key: literal(item) for key, item in value.items()}
        return [literal(item) for item in value] if isinstance(value, list | tuple) else value

    plain = {"version": 1, "engine": engine, "jobs": literal(jobs)}
    if clusters:
        plain["clusters"] = literal(clusters)
    return parse_spec(json.dumps(plain), base=os.getcwd(), names_added=names_added)
