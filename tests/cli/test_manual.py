"""Man pages, the page of all commands and completions say what the parser says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stateshift.cli.commands import GROUPS, NAMES
from stateshift.cli.commands.reference import program_and_commands
from stateshift.cli.views.completion import SHELLS, script
from stateshift.cli.views.manual import CommandFacts, Parameter, man_page, page_name
from tests.cli.support import said, whole_names
from tests.cli.test_help import HEAVY, imported_by

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).resolve().parents[2]
PROGRAM, COMMANDS = program_and_commands()
BY_NAME = {facts.name: facts for facts in COMMANDS}


def options_of(facts: CommandFacts) -> set[str]:
    return {name for option in facts.options for name in option.names}


def test_every_command_is_known_and_in_the_order_of_the_help() -> None:
    groups_first = [name for name in BY_NAME if name not in GROUPS]
    assert groups_first == list(whole_names())
    assert [name for name in BY_NAME if " " not in name] == list(NAMES)


@pytest.mark.parametrize("name", list(BY_NAME))
def test_the_facts_are_those_that_the_help_says(name: str) -> None:
    help_text = said(*name.split(), "--help").out
    options = help_text.split("Options:")[1].split("Example:")[0]
    options = options.split("Commands:")[0].split("\nLook:")[0]
    spelt = re.findall(r"^  (-[^\s,]+(?:, -\S+)*)", options, re.MULTILINE)
    assert options_of(BY_NAME[name]) == {word for words in spelt for word in words.split(", ")}
    for block in BY_NAME[name].blocks:
        assert f"{block.heading}:" in help_text
        assert all(line.strip() in help_text for line in block.lines)


@pytest.mark.parametrize("facts", (PROGRAM, *COMMANDS), ids=lambda facts: facts.name or "program")
def test_no_two_blocks_of_a_command_have_one_heading(facts: CommandFacts) -> None:
    headings = [block.heading for block in facts.blocks]
    assert len(set(headings)) == len(headings)


def test_the_page_of_all_commands_is_as_they_are() -> None:
    page = (ROOT / "stateshift" / "cli" / "README.md").read_text("utf-8")
    assert said("man", "--markdown").out == page, (
        "renew it: stateshift man --markdown > stateshift/cli/README.md"
    )


def test_a_page_is_written_for_the_program_and_each_command(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man1"
    written = said("man", str(folder), "--json").document
    assert [page["command"] for page in written] == [
        "stateshift",
        *(f"stateshift {name}" for name in BY_NAME),
    ]
    assert {page["file"] for page in written} == {str(path) for path in folder.iterdir()}
    assert len(said("man", str(folder)).out.splitlines()) == len(written)


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
@pytest.mark.parametrize("name", ["", "inspect", "rewind", "live", "live replace"])
def test_a_man_page_is_roff_without_a_warning(name: str) -> None:
    facts = BY_NAME.get(name, PROGRAM)
    page = man_page(facts, (PROGRAM,), "1.0")
    command = ["groff", "-man", "-Tutf8", "-ww", "-Kutf8"]
    done = subprocess.run(command, input=page.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout.decode())
    assert "SYNOPSIS" in shown and facts.usage in " ".join(shown.split())
    for option in options_of(facts):
        assert option in shown


def test_what_roff_would_take_for_a_request_is_text() -> None:
    about = ".hidden \\x is 'so'"
    facts = CommandFacts("x", "stateshift x", "It.", (), (Parameter(("-x",), "", about),), ())
    assert "\\&.hidden \\ex is 'so'\n" in man_page(facts, (), "1.0")
    assert page_name(facts) == "stateshift-x.1"


def test_a_folder_and_markdown_exclude_each_other(tmp_path: Path) -> None:
    assert said("man").code == 2
    assert said("man", str(tmp_path), "--markdown").code == 2
    assert said("man", "--markdown", "--json").code == 2


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert said("man", str(tmp_path / "file" / "man1")).code == 6


# ------------------------------------------------------------------------------------ completion


def completed(*words: str) -> list[str]:
    program = script("bash", PROGRAM, COMMANDS) + (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stateshift; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", program, "bash", "stateshift", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["insp"], {"inspect"}),
        (
            ["re"],
            {"resume", "rebalance", "repartition", "reposition", "rewind", "rename", "repair"},
        ),
        (["--ver"], {"--version", "--verbose"}),
        (["inspect", "--e"], {"--entries"}),
        (["inspect", "/some/where", "--fi"], {"--files"}),
        (["inspect", "/some/wh"], set()),
        (["no-such-command", "--"], set()),
        (["live", "re"], {"replace", "remove", "revert", "resume"}),
        (["live", "abort", "/some/where", "--he"], {"--help"}),
        (["status", "--wa"], {"--watch"}),
    ],
)
def test_bash_completes_commands_and_their_options(words: list[str], expected: set[str]) -> None:
    assert set(completed(*words)) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("name", list(BY_NAME))
def test_bash_knows_every_option(name: str) -> None:
    assert set(completed(*name.split(), "-")) == options_of(BY_NAME[name])


# How each shell is asked for the completions of the words that it is given, one a line.
ASKED = {
    "bash": (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stateshift; printf "%s\\n" "${COMPREPLY[@]}"'
    ),
    "zsh": (
        "compadd() { print -l $runs }; _files() { print file }\n"
        '_arguments() { ${@[-1]#*:*:} }; words=("$@"); CURRENT=$#; _stateshift'
    ),
    "fish": 'complete -C "$argv"',
}


@pytest.mark.parametrize("where", ["", "elsewhere"])
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_a_workdir_is_completed_to_the_runs_and_to_nothing_else(
    shell: str, where: str, tmp_path: Path
) -> None:
    place = where or ".stateshift"
    for run in ("20260301-orders", "a run"):
        (tmp_path / place / run).mkdir(parents=True)
        (tmp_path / place / run / "journal").touch()
    (tmp_path / place / "plan").mkdir()
    begun = {"zsh": "compdef() { :; }\n"}.get(shell, "")
    program = begun + script(shell, PROGRAM, COMMANDS) + ASKED[shell]
    runs = {f"{place}/20260301-orders", f"{place}/a run"}
    offered = {}
    for name in ("rollback", "inspect"):
        words = [] if shell == "fish" else [shell]
        command = [shell, "-c", program, *words, "stateshift", name, f"{place}/"]
        environment = {**os.environ, **({"STATESHIFT_WORKDIRS": where} if where else {})}
        made = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        offered[name] = {line.partition("\t")[0] for line in made.stdout.splitlines()}
        assert not made.stderr, made.stderr
    assert runs <= offered["rollback"]
    assert not runs & offered["inspect"]


@pytest.mark.long
@pytest.mark.parametrize("shell", list(SHELLS))
def test_a_script_names_every_command_and_option(shell: str) -> None:
    made = said("completion", shell).out
    for facts in COMMANDS:
        assert facts.name.rpartition(" ")[2] in made
        for option in facts.options:
            longest = max(option.names, key=len)
            assert (f"-l {longest[2:]}" if shell == "fish" else longest) in made
    assert said("completion", shell, "--json").document == {"shell": shell, "script": made}
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=made.encode(), check=True)


def test_quotes_and_brackets_of_a_help_text_do_not_end_a_word() -> None:
    about = "It's [one] of a:b."
    facts = CommandFacts("x", "", "It's.", (), (Parameter(("--y",), "Z", about),), ())
    assert "'*--y[It'\\''s \\[one\\] of a\\:b.]:Z:_files'" in script("zsh", PROGRAM, [facts])
    assert "-l y -r -d 'It\\'s [one] of a:b.'" in script("fish", PROGRAM, [facts])


def test_another_shell_is_refused() -> None:
    found = said("completion", "zhs")
    assert found.code == 2 and "did you mean 'zsh'" in found.err


@pytest.mark.parametrize("argv", [("completion", "bash"), ("man", "--markdown")])
def test_scripts_and_pages_are_made_without_anything_heavy(argv: tuple[str, ...]) -> None:
    assert not {module.split(".")[0] for module in imported_by(*argv)} & HEAVY
