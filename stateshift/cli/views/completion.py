"""Scripts that complete commands and options in a shell. Pure.

The scripts know all commands and their options. A workdir is completed to the folders that have a
journal, where runs are kept (`STATESHIFT_WORKDIRS`); for everything else the shell completes files.
Nothing of stateshift runs when a key is pressed, so a completion answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypedDict

from stateshift.cli.views.manual import PROGRAM, CommandFacts, Parameter

Commands = Sequence[CommandFacts]
RUNS = "${STATESHIFT_WORKDIRS:-.stateshift}"


class CompletionDocument(TypedDict):
    """A completion script."""

    shell: Annotated[str, "bash, zsh or fish"]
    script: Annotated[str, "what the shell has to source"]


def script(shell: str, program: CommandFacts, commands: Commands) -> str:
    """Return the completion script for a shell of `SHELLS`."""
    return "\n".join(SHELLS[shell](program, commands)) + "\n"


def _top_level(commands: Commands) -> list[CommandFacts]:
    return [facts for facts in commands if " " not in facts.name]


def _members(group: CommandFacts, commands: Commands) -> list[CommandFacts]:
    """Return the commands of a group; none of a command that is no group."""
    return [facts for facts in commands if facts.name.startswith(f"{group.name} ")]


def _groups(commands: Commands) -> list[CommandFacts]:
    return [facts for facts in commands if _members(facts, commands)]


def _last_word(facts: CommandFacts) -> str:
    return facts.name.rpartition(" ")[2]


def _words(facts: Iterable[CommandFacts]) -> str:
    return " ".join(_last_word(each) for each in facts)


def _takes_workdir(facts: CommandFacts) -> bool:
    return any("WORKDIR" in argument.names[0] for argument in facts.arguments)


def _spellings(facts: CommandFacts) -> str:
    names: list[str] = []
    for option in facts.options:
        names.extend(option.names)
    return " ".join(names)


# ------------------------------------------------------------------------------------ bash


def _bash(program: CommandFacts, commands: Commands) -> Iterator[str]:
    names, groups = _words(_top_level(commands)), _words(_groups(commands))
    yield f'# bash completion of {PROGRAM}: eval "$({PROGRAM} completion bash)"'
    yield f"_{PROGRAM}() {{"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" command="" word words runs=""'
    yield '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '    case "$word" in -*) continue ;; esac'
    yield '    command="${command:+$command }$word"'
    yield f'    [[ " {groups} " == *" $command "* ]] || break'
    yield "  done"
    yield '  case "$command" in'
    yield f'    "") words="{names} {_spellings(program)}" ;;'
    for facts in commands:
        words = f"{_words(_members(facts, commands))} {_spellings(facts)}".strip()
        runs = f' runs="{RUNS}"' if _takes_workdir(facts) else ""
        yield f'    "{facts.name}") words="{words}"{runs} ;;'
    yield '    *) words="" ;;'
    yield "  esac"
    yield "  COMPREPLY=()"
    yield f'  if [[ "$current" == -* || " {groups} " == *" $command "* || -z "$command" ]]; then'
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield '  elif [[ -n "$runs" ]]; then'
    yield "    compopt -o filenames 2> /dev/null"
    yield '    for word in "$runs"/*/journal; do'
    yield '      word="${word%/journal}"'
    yield '      [[ -e "$word/journal" && "$word" == "$current"* ]] && COMPREPLY+=("$word")'
    yield "    done"
    yield "  fi"
    yield "}"
    yield f"complete -o default -o bashdefault -F _{PROGRAM} {PROGRAM}"


# ------------------------------------------------------------------------------------ zsh


def _zsh(program: CommandFacts, commands: Commands) -> Iterator[str]:
    yield f"#compdef {PROGRAM}"
    yield f"# zsh completion of {PROGRAM}: source <({PROGRAM} completion zsh)"
    yield f"_{PROGRAM}_runs() {{"
    yield f"  local -a runs=({RUNS}/*/journal(N:h))"
    yield "  compadd -f -a runs || _files"
    yield "}"
    for group in _groups(commands):
        yield from _zsh_level(_zsh_function(group), group, _members(group, commands), ())
    groups = [facts.name for facts in _groups(commands)]
    yield from _zsh_level(f"_{PROGRAM}", program, _top_level(commands), groups)
    yield f"compdef _{PROGRAM} {PROGRAM}"


def _zsh_function(group: CommandFacts) -> str:
    return f"_{PROGRAM}_{group.name}"


def _zsh_level(
    function: str, whole: CommandFacts, commands: Commands, groups: Collection[str]
) -> Iterator[str]:
    """Yield the function that completes the commands of the program, or of a group."""
    yield f"{function}() {{"
    yield "  local -a commands"
    yield "  commands=("
    for facts in commands:
        yield f"    {_quoted(_last_word(facts) + ':' + facts.summary)}"
    yield "  )"
    yield "  if (( CURRENT == 2 )); then"
    yield "    _describe -t commands command commands"
    yield f"    _arguments {_zsh_options(whole)}"
    yield "    return"
    yield "  fi"
    yield "  local command=$words[2]"
    yield "  shift words"
    yield "  (( CURRENT-- ))"
    yield "  case $command in"
    for facts in commands:
        if facts.name in groups:
            yield f"    {facts.name}) {_zsh_function(facts)} ;;"
        else:
            options = _zsh_options(facts)
            files = f"_{PROGRAM}_runs" if _takes_workdir(facts) else "_files"
            yield f"    {_last_word(facts)}) _arguments {options} '*:location:{files}' ;;"
    yield "  esac"
    yield "}"


def _zsh_options(facts: CommandFacts) -> str:
    specs: list[str] = []
    for option in facts.options:
        about = option.about.replace("\\", "\\\\")
        for mark in "[]:":
            about = about.replace(mark, f"\\{mark}")
        value = f":{option.value.replace(':', ' ')}:_files" if option.value else ""
        specs.extend(_quoted(f"*{name}[{about}]{value}") for name in option.names)
    return " ".join(specs)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ------------------------------------------------------------------------------------ fish


def _fish(program: CommandFacts, commands: Commands) -> Iterator[str]:
    yield f"# fish completion of {PROGRAM}: {PROGRAM} completion fish | source"
    yield f"function __{PROGRAM}_runs"
    yield "  set -l places $STATESHIFT_WORKDIRS .stateshift"
    yield "  for journal in $places[1]/*/journal"
    yield "    string replace -r '/journal$' '' -- $journal"
    yield "  end"
    yield "end"
    for option in program.options:
        yield _fish_option("__fish_use_subcommand", option)
    for facts in _top_level(commands):
        name, about = facts.name, _fish_quoted(facts.summary)
        yield f"complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name} -d {about}"
        for option in facts.options:
            yield _fish_option(_fish_seen(facts, commands), option)
        if _takes_workdir(facts):
            condition = _fish_seen(facts, commands)
            yield f"complete -c {PROGRAM} -n '{condition}' -a '(__{PROGRAM}_runs)'"
        members, condition = _members(facts, commands), f"__fish_seen_subcommand_from {name}"
        no_other = f"{condition}; and not __fish_seen_subcommand_from {_words(members)}"
        for member in members:
            name, about = _last_word(member), _fish_quoted(member.summary)
            yield f"complete -c {PROGRAM} -n '{no_other}' -f -a {name} -d {about}"
            for option in member.options:
                yield _fish_option(f"{condition}; and __fish_seen_subcommand_from {name}", option)


def _fish_seen(facts: CommandFacts, commands: Commands) -> str:
    """Return the condition of a command that stands alone: `live status` is not `status`."""
    condition = f"__fish_seen_subcommand_from {facts.name}"
    groups = [
        group.name for group in _groups(commands) if facts.name in _words(_members(group, commands))
    ]
    for group in groups:
        condition += f"; and not __fish_seen_subcommand_from {group}"
    return condition


def _fish_option(condition: str, option: Parameter) -> str:
    long = [f"-l {name[2:]}" for name in option.names if name.startswith("--")]
    short = [f"-s {name[1:]}" for name in option.names if not name.startswith("--")]
    value = " -r" if option.value else ""
    words = " ".join(long + short)
    about = _fish_quoted(option.about)
    return f"complete -c {PROGRAM} -n '{condition}' {words}{value} -d {about}"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS: Mapping[str, Callable[[CommandFacts, Commands], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
