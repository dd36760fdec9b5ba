"""The way from argv to an exit code: settings, the commands, and the error when one of them
fails.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Protocol, cast, get_args

import typer
from typer.core import TyperGroup

from stateshift import __version__, leave_logging_to_the_program
from stateshift.cli.commands import GROUPS, NAMES, PANEL_OF, command_of, members_of
from stateshift.cli.shell.options import UNBOUNDED, Command, Json, OfProfile, Verbose
from stateshift.cli.shell.terminal import Terminal, drop, open_streams, output_errors
from stateshift.errors import SpecError

if TYPE_CHECKING:
    from stateshift.migration import Adapters
    from stateshift.specification.profile import Profile

# Former names of commands. Scripts may still say it; help does not.
OLD_NAMES = {"reconfigure": "dataflow"}

# The setting that names a profile; that which asks for JSON, and what the parser takes for a yes.
PROFILE = "STATESHIFT_PROFILE"
JSON = "STATESHIFT_JSON"
YES = ("1", "true", "t", "yes", "y", "on")

# The options whose value may be left out, by their commands.
_OPTIONAL_VALUES = {"rebalance": "--wait"}
_TIME = re.compile(r"\d")

# The words, beside LOCATION, for arguments and options that are locations.
_IMAGES = ("PLACE", "IMAGE", "A", "B", "OLD")

# The function that the parser calls: every value comes by name.
Parsed = Callable[..., int | None]

_CONTEXT = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
_OF_EVERY_COMMAND = (
    Parameter("profile", Parameter.KEYWORD_ONLY, default=None, annotation=OfProfile),
    Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
    Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=Verbose),
)

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
  policy    STATESHIFT_POLICY    rules that every new run has to keep; all files add up
            STATESHIFT_PROFILE   as --profile: a table [profile.NAME] of that file
  NO_COLOR turns colours off; CI turns the moving progress bar off.
  PAGER (or STATESHIFT_PAGER; less) shows at a terminal what is longer than
  the screen; PAGER=cat: none.

\b
Exit codes:
  0 done, 1 a bug of ours, 2 the request is not valid, 3 damaged bytes,
  4 refused, 5 a comparison failed, 6 a storage failed, 7 a cluster failed,
  8 journal or lock, 9 decided and not seen complete (`live`), 10 a job is down, or may be,
  130 interrupted: `stateshift resume WORKDIR` continues
"""


def enter(argv: Sequence[str] | None, adapters: Adapters | None) -> int | None:
    """Run the command that `argv` names. Return the exit code; errors have become text by then."""
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
        with _sigterm_is_ctrl_c(), output_errors(), in_profile(arguments) as terminal.profile:
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


@contextmanager
def in_profile(arguments: Sequence[str]) -> Iterator[Profile | None]:
    """Use, while this lasts, the profile that is named, and yield it; None for help."""
    before = os.environ.get(PROFILE)
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    own_meaning = "uid" in given[:1]
    for word, following in zip_longest(given, given[1:], fillvalue=""):
        flag, _, value = word.partition("=")
        if flag == "--profile" and not own_meaning:
            os.environ[PROFILE] = value if word != flag else following
    try:
        if "--profile=" in given and not own_meaning:
            raise SpecError.of("--profile", "it names no profile", hint="--profile NAME")
        if not os.environ.get(PROFILE) or not {*HELP, "--version"}.isdisjoint(given):
            yield None
            return
        from stateshift.api.profiles import profile_in_use

        yield profile_in_use()
    finally:
        os.environ.pop(PROFILE, None)
        if before is not None:
            os.environ[PROFILE] = before


def with_values(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments, with a value after an option that lacks its own: typer needs one."""
    option = _OPTIONAL_VALUES.get(arguments[0]) if arguments else None
    for argument, word in zip_longest(arguments, arguments[1:], fillvalue=""):
        yield argument
        if option is not None and argument == option and not _TIME.match(word):
            yield UNBOUNDED


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
        _add_command(app, name, command_of(OLD_NAMES[name]), hidden=True)
    _add_commands(app, "", NAMES, arguments)
    return app


class HelpLines(Protocol):
    """The part of the parser's help that we write."""

    width: int

    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None: ...


class GroupedCommands(TyperGroup):
    """Commands whose help has a part for each panel: typer itself groups them by rich alone. For a
    name that is none, help names the command that begins with it.
    """

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore
        """Return the command of this name."""
        if cmd_name not in self.commands and not cmd_name.startswith("-"):
            from stateshift.suggestion import did_you_mean

            ctx.fail(f"there is no command {cmd_name!r}{did_you_mean(cmd_name, [*self.commands])}")
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: object, formatter: HelpLines) -> None:
        shown = {name: each for name, each in self.commands.items() if not each.hidden}
        longest = max(map(len, shown), default=0)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in shown.items():
            about = command.get_short_help_str(formatter.width - 6 - longest)
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name.ljust(longest), about))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _empty_parser(names_command: bool) -> typer.Typer:
    # Help is plain text, the same at a terminal and in a pipe: it is printed before a coloured one
    # is imported. If a command is named, it is the one that is asked for help, and nobody asks
    # for completions: an option that is not given loads pydantic, half of the time of such help.
    return typer.Typer(
        cls=GroupedCommands,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        add_completion=not names_command,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )


def _add_commands(
    app: typer.Typer, group: str, names: Sequence[str], arguments: Sequence[str]
) -> None:
    """Add the commands of the program, or of a group: only the one that is asked for, if clear."""
    first = arguments[0] if arguments else ""
    lists_only = first in HELP
    for name in (first,) if first in names else names:
        whole_name = f"{group} {name}".strip()
        if lists_only:
            # Without its options: building those takes half of the time, and the list shows none.
            about = command_of(whole_name).function.__doc__
            app.command(name, help=about, rich_help_panel=PANEL_OF.get(whole_name))(_listed)
        elif whole_name in GROUPS:
            _add_group(app, name, arguments and (arguments[1:] or HELP))
        else:
            _add_command(app, name, command_of(whole_name))


def _listed() -> None: ...


def _add_group(app: typer.Typer, name: str, arguments: Sequence[str]) -> None:
    declared, members = command_of(name), members_of(name)
    names_command = bool(arguments) and arguments[0] in members
    group = _empty_parser(names_command)
    group.callback(epilog=declared.epilog, add_help_option=not names_command)(declared.function)
    _add_commands(group, name, members, arguments)
    app.add_typer(group, name=name)


def _add_command(app: typer.Typer, name: str, declared: Command, hidden: bool = False) -> None:
    command = _telling_errors(with_shared_options(declared.function))
    app.command(name, epilog=declared.epilog, hidden=hidden)(command)


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With --version: all that a bug report needs.")
    ] = False,
) -> None:
    """Move the state of running streaming jobs between clusters: planned, verified, resumable,
    reversible.
    """
    if version and verbose:
        from stateshift.api.environment import version_lines

        sys.stdout.write("\n".join(version_lines()) + "\n")
        raise typer.Exit
    if version:
        sys.stdout.write(f"stateshift {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def with_shared_options(command: Parsed) -> Parsed:
    """Return the command as the parser calls it, with a parameter for each of its options.

    A command says by two parameters which options it shares with others, and gets their values
    whole:

        terminal: Terminal      --json and --verbose, of every command, as --profile is
        options: RunOptions     how a run is carried out: --yes, --workdir, --parallel, …

    Annotations are evaluated here, for the commands that are parsed, and not when their modules are
    imported.
    """
    declared = inspect.signature(command, eval_str=True).parameters
    own = [each for name, each in declared.items() if name not in ("terminal", "options")]
    located = {}
    for each in own:
        _, parsed_as, *_ = (*get_args(each.annotation), None, None)  # of an `Annotated`
        located[each.name] = getattr(parsed_as, "metavar", None)
    group: type | None = declared["options"].annotation if "options" in declared else None
    shared: list[Parameter] = []  # the fields that a group of options is made from
    if group is not None:
        assert is_dataclass(group), "a group of options is declared as a dataclass"
        shared = list(inspect.signature(group, eval_str=True).parameters.values())

    def parsed(context: typer.Context, json: bool, verbose: int, **values: object) -> int | None:
        if group is not None:
            given = {each.name: values.pop(each.name) for each in shared}
            values["options"] = group(**given)
        if "profile" not in declared:
            values.pop("profile", None)  # it is in use already: `in_profile`
        terminal = Terminal.of(context, json, verbose)
        read = ""
        for name, metavar in located.items():
            values[name] = _meant(values[name], str(metavar), terminal.profile, context)
            read = read or _subject(values[name], str(metavar))
        if not read or not (terminal.verbose or sys.stderr.isatty()):
            return command(terminal, **values)
        from stateshift.cli.shell.progress import tell_if_slow
        from stateshift.storage.locations import redact

        with tell_if_slow(terminal, f"still reading {redact(read)}"):
            return command(terminal, **values)

    # The hash profile of `uid` is another thing, and older.
    of_all = [each for each in _OF_EVERY_COMMAND if each.name not in declared]
    parameters = [_CONTEXT, *own, *shared, *of_all]
    by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    parsed.__doc__ = command.__doc__
    parsed.__signature__ = Signature(by_name)  # type: ignore[attr-defined]
    return parsed


def _subject(value: object, metavar: str) -> str:
    """Return the image, or the spec of images, that an argument names; empty for any other."""
    first = value[0] if isinstance(value, list) and value else value
    is_read = metavar in _IMAGES or "LOCATION" in metavar or "SPEC" in metavar
    if not isinstance(first, str) or not is_read:
        return ""
    return f"what {first} names" if "SPEC" in metavar and "://" not in first else first


def _meant(value: object, metavar: str, profile: Profile | None, context: typer.Context) -> object:
    """Return an argument with its locations in full, and the workdirs of the runs that it names."""
    if profile is not None and ("LOCATION" in metavar or metavar in _IMAGES):
        value = profile.located(value, metavar)
    if "WORKDIR" not in metavar:
        return value
    from stateshift.cli.commands.runs import workdir_named
    from stateshift.cli.shell.options import WORKDIRS

    of_settings = context.default_map or {}
    given = context.params.get("workdirs") or os.environ.get("STATESHIFT_WORKDIRS")
    workdirs = str(given or of_settings.get("workdirs") or WORKDIRS)
    if isinstance(value, list):
        return [workdir_named(each, workdirs) for each in value]
    return workdir_named(str(value), workdirs)


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
        logging: AbstractContextManager[None] = nullcontext()
        if verbose:
            from stateshift.cli.shell.progress import on_stderr

            logging = on_stderr(verbose)
        else:
            leave_logging_to_the_program()
        with logging:
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


def _defaults(arguments: list[str], terminal: Terminal) -> Mapping[str, object]:
    """Return the settings files as every command's defaults; none for help. A setting that asks for
    JSON counts from here on, also for an argument that does not fit.
    """
    asks_for_help = not {*HELP, "--version"}.isdisjoint(arguments)
    lists_commands = not arguments or (len(arguments) == 1 and arguments[0] in GROUPS)
    if asks_for_help or lists_commands:
        return {}
    from stateshift.api.profiles import settings, settings_directories

    values, profile = settings(settings_directories()), terminal.profile
    if profile is not None:  # its limits count below those of a spec, and these above
        own = {name: values[name] for name in values.keys() - profile.defaults.keys()}
        values = own | dict(profile.settings)
    if JSON not in os.environ:
        terminal.json = terminal.json or values.get("json") is True
    values.pop("policy", None)  # it is nobody's default: `policies_in_use`
    memory = values.pop("memory", None)
    _bound_memory(os.environ.get("STATESHIFT_MEMORY") or memory)
    by_command = dict.fromkeys((*NAMES, *OLD_NAMES), values)
    by_group = {group: dict.fromkeys(members_of(group), values) for group in GROUPS}
    return {**by_command, **by_group}


def _bound_memory(value: object) -> None:
    """Set how much memory this process may take for what it reads; it is ours from here on."""
    from stateshift.formats import bounds
    from stateshift.specification.grammars import bytes_of

    bounds.own_process()
    size = None
    try:
        if value is not None:
            size = bytes_of(str(value))
            if size < bounds.LEAST:
                least = f"{bounds.LEAST >> 20} MiB"
                raise ValueError(f"{value!r} is less than the {least} that we need ourselves")
        bounds.set_request(size)
    except ValueError as error:
        raise SpecError.of("STATESHIFT_MEMORY", str(error), hint="STATESHIFT_MEMORY=1GiB") from None


def _refused(error: UsageError, terminal: Terminal) -> int:
    """Tell an argument that does not fit as any other error of the request."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return 2
    from stateshift.cli.shell.failing import tell

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else _named(terminal.arguments)
    message, hint = error.format_message(), f"{command} --help"
    epilog = context.command.epilog if context is not None else None
    example = _example_for(message, epilog or "")
    if example and " " in command:
        hint = f"{hint}; for example: {example}"
    return tell(SpecError.of(command, message, hint=hint), terminal)


def _example_for(message: str, epilog: str) -> str:
    """Return the example of a command's help that has the most of the options of a message."""
    options = set(re.findall(r"--[a-z-]+", message))
    best, most = "", -1
    for line in epilog.partition("Example:")[2].partition("Exit codes:")[0].split("\n"):
        if line.strip().startswith("stateshift "):
            shared = len(options & set(line.split()))
            if shared > most:
                best, most = line.strip(), shared
    return best


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
