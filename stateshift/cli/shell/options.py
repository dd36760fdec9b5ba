"""Options that several commands take, declared once. The names are those of the environment
(`STATESHIFT_…`) and of the settings file, too. The parser reads these annotations: nothing heavy
may be imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import typer

from stateshift.cli.views.units import rate

T = TypeVar("T", bound=str)
# The value of a time that was left out.
UNBOUNDED = "unbounded"


def _rate(text: str | None) -> str | None:
    if text is not None:
        try:
            rate(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return text


def names_in(text: str) -> list[str]:
    """Return the names that an option gives with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def choice(flag: str, text: str, choices: tuple[T, ...]) -> T:
    """Return the word that an option was given, or refuse it with those there are."""
    from stateshift.errors import Complaint, SpecError

    for known in choices:
        if text.strip().lower() == known:
            return known
    names = ", ".join(choices)
    complaint = Complaint(flag, f"{text!r} is not one of {names}", text, f"one of {names}")
    raise SpecError((complaint,), hint=f"{flag} {choices[0]}")


def refuse_no_file(flag: str, path: str, noun: str, name: str) -> None:
    """Refuse a path where no file can be written: a directory, or a place in none that is there.
    The hint for a directory is the file of this `name` in it.
    """
    import os
    from shlex import quote

    from stateshift.errors import Complaint, SpecError, StorageError

    if os.path.isdir(path):
        raise SpecError(
            (Complaint(flag, f"{path} is a directory, and {noun} is a file"),),
            hint=f"{flag} {quote(os.path.join(path, name))}",
        )
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        fact = f"{flag} {path}: the directory {folder} is not there"
        raise StorageError(fact, location=path, hint=f"mkdir -p {quote(folder)}")


Json = Annotated[
    bool, typer.Option("--json", envvar="STATESHIFT_JSON", help="One JSON document on stdout.")
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        show_default=False,
        help="Log to stderr; -vv also logs requests and storage operations.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask. Needed where nobody can answer.")
]
Jobs = Annotated[
    list[str] | None,
    typer.Option("--job", metavar="NAME", help="Only this job of the spec. Repeatable."),
]
WorkdirOf = Annotated[
    str, typer.Argument(metavar="WORKDIR", help="The workdir of a run (see: stateshift runs).")
]
Location = Annotated[str, typer.Argument(metavar="LOCATION", help="A URL or a local path.")]
Source = Annotated[
    str, typer.Argument(metavar="LOCATION", help="The checkpoint: a URL or a local path.")
]
To = Annotated[
    str,
    typer.Option("--to", metavar="LOCATION", help="Where the new image goes. Must be empty."),
]
Waive = Annotated[
    list[str] | None,
    typer.Option(
        "--waive",
        metavar="NAME",
        help="A refusal that you take responsibility for. Repeatable.",
    ),
]
Fork = Annotated[
    bool,
    typer.Option(
        "--fork",
        help="Do not fence the source: its job may run on. The copy gets an id of its own.",
    ),
]
WasAt = Annotated[
    str | None,
    typer.Option(
        "--was-at",
        metavar="OLD",
        help="Where the checkpoint was made, if it was copied by other means since. Spark only.",
    ),
]
NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync",
        help="Do not wait until a fork is on a local disk. Quicker; a power cut can lose it.",
    ),
]
WorkdirHere = Annotated[
    str | None,
    typer.Option(
        "--workdir", metavar="D", help="Keep journal and report here, not in WORKDIRS/<run>."
    ),
]
Workdirs = Annotated[
    str,
    typer.Option(
        "--workdirs", metavar="DIR", envvar="STATESHIFT_WORKDIRS", help="Where workdirs are made."
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        max=256,
        envvar="STATESHIFT_PARALLEL",
        help="How many steps and processes at once. 1: one process.",
    ),
]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        envvar="STATESHIFT_THROTTLE",
        callback=_rate,
        help="Bytes a second at most, read and written (50MB, 64MiB). Overrides the spec.",
    ),
]
FleetOf = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="MASTER",
        envvar="STATESHIFT_FLEET",
        help=(
            "Run the work on the executors of this Spark: local[N], spark://host:port, yarn, "
            "k8s://…"
        ),
    ),
]

WORKDIRS = ".stateshift"


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out. Each field is an option of every command that starts one."""

    yes: Yes = False
    workdir: WorkdirHere = None
    parallel: Parallel = None
    throttle: Throttle = None
    fleet: FleetOf = None
    workdirs: Workdirs = WORKDIRS


@dataclass(frozen=True)
class LocalRunOptions(RunOptions):
    """The same without --fleet, for runs of which no fleet can share the work."""

    fleet: None = field(default=None, init=False)


EXITS = {
    0: "done, or nothing to do",
    1: "a bug of ours (a file holds the traceback)",
    2: "the request or the spec is not valid",
    3: "bytes are not what their format says",
    4: "the request does not fit what was found",
    5: "a comparison or a verification failed",
    6: "a storage failed",
    7: "a cluster failed",
    8: "the journal is damaged or not ours, or another run holds it",
    9: "decided, and not seen to be complete within --wait",
    10: "a job that the run has stopped is down: the first words say since when",
    130: "interrupted",
}


def epilog(example: str, *codes: int, **said: str) -> str:
    """Return the end of a command's help: an example to paste, and its exit codes. `said` replaces
    a code's words (`e5=…`). The \\b keeps the lines as they are.
    """
    examples = [f"  {line}" for line in example.split("\n")]
    exits = [f"  {code:<4} {said.get(f'e{code}', EXITS[code])}" for code in (0, *codes)]
    return "\n".join(("\b", "Example:", *examples, "", "\b", "Exit codes:", *exits))
