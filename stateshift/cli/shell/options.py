"""Options that several commands take, declared once. The names are those of the environment
(`STATESHIFT_…`) and of the settings file, too. The parser reads these annotations: nothing heavy
may be imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict, TypeVar, Unpack

import typer

from stateshift.errors import PlanError, SpecError, StorageError

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.specification import Spec

T = TypeVar("T", bound=str)
# The value of a time that was left out.
UNBOUNDED = "unbounded"


class Rules(TypedDict, total=False):
    """The rules for an option's value, and where else it may come from."""

    min: float
    max: float
    envvar: str
    callback: Callable[..., object]


def option(names: str, metavar: str, help: str, **rules: Unpack[Rules]) -> object:
    """Declare an option that has a value. `names` are its spellings, with blanks between them."""
    return typer.Option(*names.split(), metavar=metavar, help=help, **rules)


def flag(names: str, help: str, envvar: str | None = None) -> object:
    """Declare an option without a value."""
    return typer.Option(*names.split(), help=help, envvar=envvar)


def argument(
    metavar: str, help: str, envvar: str | None = None, show_default: bool = True
) -> object:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, envvar=envvar, show_default=show_default)


def _rate(text: str | None) -> str | None:
    if text is not None:
        from stateshift.specification.grammars import rate

        try:
            rate(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return text


def use_descriptors(paths: list[str] | None) -> list[str] | None:
    """Have messages of protobuf named by the files of an option."""
    if paths:
        from stateshift import api

        api.use_descriptors(*paths)
    return paths


def names_in(text: str) -> list[str]:
    """Return the names that an option gives with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def choice(flag: str, text: str, choices: tuple[T, ...]) -> T:
    """Return the word that an option was given, or refuse it with those there are."""
    for known in choices:
        if text.strip().lower() == known:
            return known
    names = ", ".join(choices)
    message = f"{text!r} is not one of {names}"
    raise SpecError.of(flag, message, text, f"one of {names}", hint=f"{flag} {choices[0]}")


def overridden(spec: Spec, parallel: int | None, throttle: str | None) -> Spec:
    """Return the spec under the flags and settings that say how hard to work; never what to do."""
    from stateshift.specification.grammars import rate

    if parallel is not None:
        spec = replace(spec.without_given("parallel"), parallel=parallel)
    if throttle is not None:
        spec = replace(spec.without_given("throttle"), bytes_per_second=rate(throttle))
    return spec


def refuse_no_file(flag: str, path: str, noun: str, name: str) -> None:
    """Refuse a path where no file can be written. The hint for a directory is `name` in it."""
    import os
    from shlex import quote

    if os.path.isdir(path):
        hint = f"{flag} {quote(os.path.join(path, name))}"
        raise SpecError.of(flag, f"{path} is a directory, and {noun} is a file", hint=hint)
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        fact = f"{flag} {path}: the directory {folder} is not there"
        raise StorageError(fact, location=path, hint=f"mkdir -p {quote(folder)}")


def refuse_replacing(terminal: Terminal, flag: str, file: str, overwrite: bool) -> None:
    """Refuse a file that is there already, before the work whose result it is to hold."""
    import os

    from stateshift.storage import locations

    if overwrite:
        return
    place = locations.normal(file, os.getcwd())
    path = locations.local_path(place)
    # A pipe or a device takes what it is given.
    is_there = path is not None and os.path.isfile(path)
    if path is None:
        folder = terminal.opening()(locations.parent(place))
        is_there = folder.stat(locations.name(place)) is not None
    if is_there:
        fact = f"{flag}: {file} is there, and stays as it is"
        raise PlanError(fact, hint=terminal.again("--overwrite"))


Json = Annotated[bool, flag("--json", "One JSON document on stdout.", envvar="STATESHIFT_JSON")]
Format = Annotated[
    str,
    option(
        "--format",
        "FORMAT",
        "text; markdown, for a pull request; csv or jsonl: the rows of the table, as --json has "
        "them.",
    ),
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
OfProfile = Annotated[
    str | None,
    option(
        "--profile",
        "NAME",
        "Use what [profile.NAME] of stateshift.toml holds: clusters, storages, limits.",
        envvar="STATESHIFT_PROFILE",
    ),
]
Overwrite = Annotated[bool, flag("--overwrite", "Replace the file, if it is there.")]
Yes = Annotated[bool, flag("--yes -y", "Do not ask. Needed where nobody can answer.")]
Jobs = Annotated[
    list[str] | None, option("--job", "NAME", "Only this job of the spec. Repeatable.")
]
WorkdirOf = Annotated[
    str, argument("WORKDIR", "The workdir of a run, or the run's name (see: stateshift runs).")
]
Location = Annotated[str, argument("LOCATION", "A URL or a local path.")]
Descriptors = Annotated[
    list[str] | None,
    option(
        "--descriptor",
        "FILE",
        "The messages of protobuf in Flink state, as protoc --include_imports "
        "--descriptor_set_out=FILE writes them. Repeatable.",
        callback=use_descriptors,
    ),
]
Source = Annotated[str, argument("LOCATION", "The checkpoint: a URL or a local path.")]
To = Annotated[str, option("--to", "LOCATION", "Where the new image goes. Must be empty.")]
Waive = Annotated[
    list[str] | None,
    option("--waive", "NAME", "A refusal that you take responsibility for. Repeatable."),
]
Fork = Annotated[
    bool,
    flag("--fork", "Do not fence the source: its job may run on. The copy gets an id of its own."),
]
WasAt = Annotated[
    str | None,
    option(
        "--was-at",
        "OLD",
        "Where the checkpoint was made, if it was copied by other means since. Spark only.",
    ),
]
NoSync = Annotated[
    bool,
    flag(
        "--no-sync",
        "Do not wait until a fork is on a local disk. Quicker; a power cut can lose it.",
    ),
]
WorkdirHere = Annotated[
    str | None, option("--workdir", "D", "Keep journal and report here, not in WORKDIRS/<run>.")
]
Workdirs = Annotated[
    str, option("--workdirs", "DIR", "Where workdirs are made.", envvar="STATESHIFT_WORKDIRS")
]
Parallel = Annotated[
    int | None,
    option(
        "--parallel",
        "N",
        "How many steps and processes at once. 1: one process.",
        min=1,
        max=256,
        envvar="STATESHIFT_PARALLEL",
    ),
]
Throttle = Annotated[
    str | None,
    option(
        "--throttle",
        "RATE",
        "Bytes a second at most, read and written (50MB, 64MiB). Overrides the spec.",
        envvar="STATESHIFT_THROTTLE",
        callback=_rate,
    ),
]
FleetOf = Annotated[
    str | None,
    option(
        "--fleet",
        "MASTER",
        "Run the work on the executors of this Spark: local[N], spark://host:port, yarn, k8s://…",
        envvar="STATESHIFT_FLEET",
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


@dataclass(frozen=True)
class CopyOptions:
    """How a job's new image is made of its old one."""

    waive: Waive = None
    fork: Fork = False
    no_sync: NoSync = False


@dataclass(frozen=True)
class ImageOptions(RunOptions, CopyOptions):
    """The options of a run that makes one image of another."""


@dataclass(frozen=True)
class ForkOptions(ImageOptions):
    """The same without --fork, for runs that always fork."""

    fork: bool = field(default=True, init=False)


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
    10: "a job that the run has stopped is down, or may be: the first words say since when",
    130: "interrupted",
}


def epilog(example: str, *codes: int, **said: str) -> str:
    """Return the end of a command's help: an example to paste, and its exit codes. `said` replaces
    a code's words (`e5=…`). The \\b keeps the lines as they are.
    """
    examples = [f"  {line}" for line in example.split("\n")]
    exits = [f"  {code:<4} {said.get(f'e{code}', EXITS[code])}" for code in (0, *codes)]
    return "\n".join(("\b", "Example:", *examples, "", "\b", "Exit codes:", *exits))


class Command(NamedTuple):
    """A command as the parser takes it; `epilog` ends its help."""

    function: Callable[..., int | None]
    epilog: str


def command(
    example: str, exits: tuple[int, ...], before: str = "", **said: str
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function a command. Its help ends with what comes `before`, then as `epilog` says."""
    return lambda function: Command(function, before + epilog(example, *exits, **said))
