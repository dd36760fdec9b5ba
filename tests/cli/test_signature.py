"""What the parser reads of a command: options are declared once, and reach the command whole."""

from __future__ import annotations

import inspect
from dataclasses import fields
from types import SimpleNamespace

from stateshift.cli.commands import command_of
from stateshift.cli.shell.entry import Parsed, with_shared_options
from stateshift.cli.shell.options import LocalRunOptions, RunOptions
from stateshift.cli.shell.terminal import Terminal

INSPECT, FORK, GATHER = (command_of(name).function for name in ("inspect", "fork", "gather"))
RUN_OPTIONS = [field.name for field in fields(RunOptions)]


def parameters(command: Parsed) -> list[str]:
    return list(inspect.signature(with_shared_options(command)).parameters)


def test_every_command_has_profile_json_and_verbose_last() -> None:
    for command in (INSPECT, FORK, GATHER):
        assert parameters(command)[0] == "context"
        assert parameters(command)[-3:] == ["profile", "json", "verbose"]


def test_a_command_that_starts_a_run_has_an_option_for_each_field_behind_its_own() -> None:
    assert parameters(FORK)[1:-3] == ["source", "to", "waive", "no_sync", *RUN_OPTIONS]
    assert not set(RUN_OPTIONS) & set(parameters(INSPECT))


def test_a_run_that_no_fleet_can_share_has_no_fleet() -> None:
    assert set(RUN_OPTIONS) - set(parameters(GATHER)) == {"fleet"}
    assert LocalRunOptions().fleet is None


def test_options_reach_the_command_as_one_value_and_set_its_terminal() -> None:
    def command(terminal: Terminal, options: RunOptions, place: str) -> int:
        assert terminal.json and terminal.verbose
        assert (options.yes, options.workdirs, place) == (True, "runs", "here")
        return 7

    context = SimpleNamespace(obj=Terminal())
    values = dict.fromkeys(RUN_OPTIONS) | {"yes": True, "workdirs": "runs"}
    parsed = with_shared_options(command)
    assert parsed(context=context, json=True, verbose=2, place="here", **values) == 7
