"""The signature of a command that the parser reads: its own parameters, then the options that it
shares.

A command says by two parameters which options it shares with others, and gets their values whole:

    terminal: Terminal      --json and --verbose, of every command
    options: RunOptions     how a run is carried out: --yes, --workdir, --parallel, …

Annotations are evaluated here, for the commands that are parsed, and not when their modules are
imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import Parameter, Signature

import typer

from stateshift.cli.shell.options import Json, Verbose
from stateshift.cli.shell.terminal import Terminal

# The function that the parser calls: every value comes by name.
Parsed = Callable[..., int | None]

_CONTEXT = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
_OF_EVERY_COMMAND = (
    Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
    Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=Verbose),
)


def with_shared_options(command: Parsed) -> Parsed:
    """Return the command as the parser calls it, with a parameter for each of its options."""
    declared = inspect.signature(command, eval_str=True).parameters
    own = [each for name, each in declared.items() if name not in ("terminal", "options")]
    group = declared["options"].annotation if "options" in declared else None
    shared = _parameters_of(group)

    def parsed(context: typer.Context, json: bool, verbose: int, **values: object) -> int | None:
        if group is not None:
            given = {each.name: values.pop(each.name) for each in shared}
            values["options"] = group(**given)
        return command(Terminal.of(context, json, verbose), **values)

    parameters = [_CONTEXT, *own, *shared, *_OF_EVERY_COMMAND]
    by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    parsed.__doc__ = command.__doc__
    parsed.__signature__ = Signature(by_name)  # type: ignore[attr-defined]
    return parsed


def _parameters_of(group: type | None) -> list[Parameter]:
    """Return the options that a group declares: the fields that it is made from."""
    if group is None:
        return []
    assert is_dataclass(group), "a group of options is declared as a dataclass"
    return list(inspect.signature(group, eval_str=True).parameters.values())
