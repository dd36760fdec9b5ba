"""The way from argv to an exit code: settings, the commands, and the error when one of them
fails.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from stateshift import __version__, leave_logging_to_the_program
from stateshift.cli.commands import GROUPS, NAMES, members_of, module_of
from stateshift.cli.shell import settings
from stateshift.cli.shell.optional_values import with_values
from stateshift.cli.shell.signature import Parsed, with_shared_options
from stateshift.cli.shell.terminal import Terminal, drop, open_streams, output_errors

if TYPE_CHECKING:
    from stateshift.migration import Adapters

# Former names of commands. Scripts may still say it; help does not.
OLD_NAMES = {"reconfigure": "dataflow"}

# The setting that asks for JSON, and what the parser takes for a yes.
JSON = "STATESHIFT_JSON"
YES = ("1", "true", "t", "yes", "y", "on")

# The error of an argument that does not fit; which package it comes from depends on typer's
# version.
Usage: type[Exception] = typer.BadParameter.__mro__[2]


class UsageError(Protocol):
    """The part of such an error that we use."""

    ctx: typer.Context | None

    def format_message(self) -> str: ...


# The options that list the commands; no argument at all does so, too.
HELP = ("--help", "-h")

EPILOG = """\b
Example:
  stateshift inspect hdfs://namenode:8020/checkpoints/orders
  stateshift plan orders.json -o orders.plan
  stateshift apply orders.plan

\b
Settings:
  From flags, then the environment, then stateshift.toml in the working
  directory or the user's config directory.
  json      STATESHIFT_JSON      one JSON document on stdout
  parallel  STATESHIFT_PARALLEL  how many steps and processes at once
  throttle  STATESHIFT_THROTTLE  bytes a second at most: "50MB"
  workdirs  STATESHIFT_WORKDIRS  where workdirs are made (.stateshift)
  fleet     STATESHIFT_FLEET     a Spark master whose executors share the work
  memory    STATESHIFT_MEMORY    memory for reading, and of all processes: "2GiB"
  NO_COLOR turns colours off; CI turns the moving progress bar off.

\b
Exit codes:
  0 done, 1 a bug of ours, 2 the request is not valid, 3 damaged bytes,
  4 refused, 5 a comparison failed, 6 a storage failed, 7 a cluster failed,
  8 journal or lock, 9 decided and not seen complete (`live`), 10 a job is down,
  130 interrupted: `stateshift resume WORKDIR` continues
"""


def enter(argv: Sequence[str] | None, adapters: Adapters | None) -> int | None:
    """Run the command that `argv` names; everything it raises has become text and an exit code
    on return.
    """
    # A listing makes tens of thousands of small values at once, none of them garbage: collecting
    # every seven hundred costs a fifth of an inspection.
    gc.set_threshold(50_000, 20, 20)
    open_streams()
    if argv is None:
        argv = sys.argv[1:]
    arguments = list(argv)
    asks = "--json" in arguments or os.environ.get(JSON, "").strip().lower() in YES
    terminal = Terminal(adapters, json=asks, arguments=tuple(arguments))
    try:
        with _sigterm_is_ctrl_c(), output_errors():
            answer = _app(arguments or HELP)(
                args=list(with_values(arguments)),
                prog_name="stateshift",
                standalone_mode=False,
                obj=terminal,
                default_map=_defaults(arguments, terminal),
            )
            sys.stdout.flush()
    except Usage as error:
        return _refused(cast("UsageError", error), terminal)
    except BrokenPipeError:
        return _unread()
    except (Exception, KeyboardInterrupt) as error:
        # It was raised before a command began: commands tell their own.
        from stateshift.cli.shell.failing import tell

        return tell(error, terminal)
    return answer if isinstance(answer, int) else 0


def parser() -> typer.Typer:
    """Return the parser of all commands, as help pages are made from it."""
    return _app(())


def _app(arguments: Sequence[str]) -> typer.Typer:
    name = arguments[0] if arguments else ""
    names_command = name in (*NAMES, *OLD_NAMES)
    app = _empty_parser(names_command)
    top = app.callback(
        epilog=EPILOG, invoke_without_command=True, add_help_option=not names_command
    )
    top(_top)
    if name in OLD_NAMES:
        _add_command(app, name, module_of(OLD_NAMES[name]), hidden=True)
    _add_commands(app, "", NAMES, arguments)
    return app


def _empty_parser(names_command: bool) -> typer.Typer:
    # Help is plain text, the same at a terminal and in a pipe: it is printed before a coloured one
    # is imported. If a command is named, it is the one that is asked for help, and nobody asks
    # for completions: an option that is not given loads pydantic, half of the time of such help.
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        add_completion=not names_command,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )


def _add_commands(
    app: typer.Typer, group: str, names: Sequence[str], arguments: Sequence[str]
) -> None:
    """Add the commands of the program, or of a group. Each process builds its parsers again: where
    the command is clear, only its own is needed.
    """
    first = arguments[0] if arguments else ""
    lists_only = first in HELP
    for name in (first,) if first in names else names:
        whole_name = f"{group} {name}".strip()
        if lists_only:
            _list_command(app, name, module_of(whole_name))
        elif whole_name in GROUPS:
            _add_group(app, name, arguments and (arguments[1:] or HELP))
        else:
            _add_command(app, name, module_of(whole_name))


def _list_command(app: typer.Typer, name: str, module: ModuleType) -> None:
    """Add a command without its options: building those takes half of the time, and the list of
    commands shows none of them.
    """

    def listed() -> None: ...

    listed.__doc__ = module.command.__doc__
    app.command(name)(listed)


def _add_group(app: typer.Typer, name: str, arguments: Sequence[str]) -> None:
    module, members = module_of(name), members_of(name)
    names_command = bool(arguments) and arguments[0] in members
    group = _empty_parser(names_command)
    group.callback(epilog=module.EPILOG, add_help_option=not names_command)(module.command)
    _add_commands(group, name, members, arguments)
    app.add_typer(group, name=name)


def _add_command(app: typer.Typer, name: str, module: ModuleType, hidden: bool = False) -> None:
    command = _telling_errors(with_shared_options(module.command))
    app.command(name, epilog=module.EPILOG, hidden=hidden)(command)


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --version: all that a bug report needs."),
    ] = False,
) -> None:
    """Move the state of running streaming jobs between clusters: planned, verified, resumable,
    reversible.
    """
    if version and verbose:
        from stateshift.cli.shell.environment import print_versions

        print_versions()
        raise typer.Exit
    if version:
        sys.stdout.write(f"stateshift {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def _telling_errors(command: Parsed) -> Parsed:
    """Return a command that shows what the given one raises, and returns its exit code."""

    @wraps(command)
    def telling(*, context: typer.Context, verbose: int, **values: object) -> int | None:
        try:
            return _run_telling(command, context, verbose, values)
        except BrokenPipeError:
            return _unread()  # the parser would end the process itself, with 1

    return telling


def _run_telling(
    command: Parsed, context: typer.Context, verbose: int, values: Mapping[str, object]
) -> int | None:
    try:
        with _logging(verbose):
            return command(context=context, verbose=verbose, **values)
    except (typer.Exit, BrokenPipeError, Usage):
        raise
    except typer.Abort:
        caught: BaseException = KeyboardInterrupt()
    except (Exception, KeyboardInterrupt) as error:
        caught = error
    from stateshift.cli.shell.failing import tell

    return tell(caught, context.obj)


def _unread() -> int:
    """Return the exit code of a program whose output nobody reads: `… | head`."""
    drop(sys.stdout)
    return 128 + signal.SIGPIPE


def _logging(verbosity: int) -> AbstractContextManager[None]:
    """Show log records on stderr if asked to, and none otherwise."""
    if not verbosity:
        leave_logging_to_the_program()
        return nullcontext()
    from stateshift.cli.shell.verbosity import on_stderr

    return on_stderr(verbosity)


def _defaults(arguments: list[str], terminal: Terminal) -> Mapping[str, object]:
    """Return the settings files as every command's defaults. Asking for help reads none of them.
    An option that asks for JSON counts from here on: an argument that does not fit is reported in
    it, too.
    """
    asks_for_help = not {*HELP, "--version"}.isdisjoint(arguments)
    lists_commands = not arguments or (len(arguments) == 1 and arguments[0] in GROUPS)
    if asks_for_help or lists_commands:
        return {}
    values = settings.read((os.getcwd(), typer.get_app_dir("stateshift")))
    if JSON not in os.environ:
        terminal.json = terminal.json or values.get("json") is True
    memory = values.pop("memory", None)
    _bound_memory(os.environ.get("STATESHIFT_MEMORY") or memory)
    by_command = dict.fromkeys((*NAMES, *OLD_NAMES), values)
    by_group = {group: dict.fromkeys(members_of(group), values) for group in GROUPS}
    return {**by_command, **by_group}


def _bound_memory(value: object) -> None:
    """Set how much memory this process may take for what it reads; it is ours from here on."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.formats import bounds

    bounds.own_process()
    try:
        bounds.set_request(None if value is None else _memory(str(value)))
    except ValueError as error:
        raise SpecError(
            (Complaint("STATESHIFT_MEMORY", str(error)),), hint="STATESHIFT_MEMORY=1GiB"
        ) from None


def _memory(text: str) -> int:
    from stateshift.cli.views.units import bytes_of
    from stateshift.formats import bounds

    size = bytes_of(text)
    if size < bounds.LEAST:
        least = f"{bounds.LEAST >> 20} MiB"
        raise ValueError(f"{text!r} is less than the {least} that we need ourselves")
    return size


def _refused(error: UsageError, terminal: Terminal) -> int:
    """Tell an argument that does not fit as any other error of the request."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return 2
    from stateshift.cli.shell.failing import tell
    from stateshift.errors import Complaint, SpecError

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else _named(terminal.arguments)
    complaint = Complaint(command, error.format_message())
    return tell(SpecError((complaint,), hint=f"{command} --help"), terminal)


def _named(arguments: Sequence[str]) -> str:
    """Return the command that is asked for: the parser does not say where a value is missing."""
    name = arguments[0] if arguments else ""
    if name not in (*NAMES, *OLD_NAMES):
        return "stateshift"
    if name in GROUPS and len(arguments) > 1 and arguments[1] in members_of(name):
        return f"stateshift {name} {arguments[1]}"
    return f"stateshift {name}"


@contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: somebody else's program, and its signals are its own
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
