"""The parameters and the help of commands, as values; and the manual that is made from them: a man
page for each command, and one page of all of them in Markdown. Pure.

The facts are read from the parser, so that no page can say something else.

A man page is roff in the `man` macros: `.TH` begins it, `.SH` begins a section, `.TP` is a term
with its text, `.nf` and `.fi` keep lines as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

PROGRAM = "stateshift"
SECTION = 1
RENEW = f"{PROGRAM} man --markdown"


@dataclass(frozen=True)
class Parameter:
    """An argument, or an option with its spellings; `value` stands behind it, empty for a flag."""

    names: tuple[str, ...]
    value: str
    about: str
    is_option: bool = True

    @property
    def shown(self) -> str:
        """The spellings, short ones first, and the value."""
        spellings = ", ".join(sorted(self.names, key=len))
        return f"{spellings} {self.value}".strip()


@dataclass(frozen=True)
class HelpBlock:
    """Lines that stay as they are under a heading: an example, or exit codes."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class CommandFacts:
    """A command; the program itself has no `name`."""

    name: str
    usage: str
    summary: str
    paragraphs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    blocks: tuple[HelpBlock, ...]

    @property
    def whole_name(self) -> str:
        """`stateshift inspect`, or `stateshift`."""
        return f"{PROGRAM} {self.name}".strip()

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        return tuple(each for each in self.parameters if not each.is_option)

    @property
    def options(self) -> tuple[Parameter, ...]:
        return tuple(each for each in self.parameters if each.is_option)


class ManPageDocument(TypedDict):
    """A man page that was written."""

    command: Annotated[str, "the command, with the program's name before it"]
    file: Annotated[str, "the file"]


def page_name(facts: CommandFacts) -> str:
    """Return the name of a man page's file: `stateshift-inspect.1`."""
    return f"{facts.whole_name.replace(' ', '-')}.{SECTION}"


def man_page(facts: CommandFacts, others: Sequence[CommandFacts], version: str) -> str:
    """Return the man page of one command; `others` are the pages that it refers to."""
    return "\n".join(_man_lines(facts, others, version)) + "\n"


def _man_lines(facts: CommandFacts, others: Sequence[CommandFacts], version: str) -> Iterator[str]:
    title = facts.whole_name.replace(" ", "-").upper()
    yield f'.TH "{title}" "{SECTION}" "" "{PROGRAM} {version}" "{PROGRAM} manual"'
    yield ".SH NAME"
    yield f"{_roff(facts.whole_name.replace(' ', '-'))} \\- {_roff(facts.summary)}"
    yield ".SH SYNOPSIS"
    yield f".B {_roff(facts.usage)}"
    yield ".SH DESCRIPTION"
    for paragraph in facts.paragraphs:
        yield ".PP"
        yield _roff(paragraph)
    yield from _man_terms("ARGUMENTS", facts.arguments)
    yield from _man_terms("OPTIONS", facts.options)
    for block in facts.blocks:
        yield f".SH {_roff(block.heading.upper())}"
        yield ".nf"
        yield from (_roff(line) for line in block.lines)
        yield ".fi"
    yield ".SH SEE ALSO"
    for other in others:
        yield f".BR {_roff(page_name(other)[:-2])} ({SECTION})"


def _man_terms(heading: str, parameters: Sequence[Parameter]) -> Iterator[str]:
    if not parameters:
        return
    yield f".SH {heading}"
    for parameter in parameters:
        yield ".TP"
        yield f".B {_roff(parameter.shown)}"
        yield _roff(parameter.about)


def _roff(text: str) -> str:
    """Return text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


# ------------------------------------------------------------------------------------ Markdown


def reference(program: CommandFacts, commands: Sequence[CommandFacts]) -> str:
    """Return the page of all commands, in Markdown."""
    lines = [
        "# All commands",
        "",
        f"<!-- Made by `{RENEW}`; a test holds it to what the commands say. -->",
        "",
        "The page says what `--help` says. Man pages: `stateshift man DIR`. Completion of commands "
        "and",
        "options in your shell: `stateshift completion --help`.",
        "",
        "| command | does |",
        "|---|---|",
    ]
    for facts in commands:
        anchor = facts.name.replace(" ", "-")
        lines.append(f"| [`{facts.name}`](#{anchor}) | {_cell(facts.summary)} |")
    lines += ["", *_markdown(program, title=f"`{PROGRAM}`")]
    for facts in commands:
        lines += _markdown(facts, title=facts.name)
    return "\n".join(lines).rstrip() + "\n"


def _markdown(facts: CommandFacts, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from ("```text", facts.usage, "```", "")
    for paragraph in facts.paragraphs:
        yield paragraph
        yield ""
    yield "| argument or option | means |"
    yield "|---|---|"
    for parameter in facts.parameters:
        yield f"| `{_cell(parameter.shown)}` | {_cell(parameter.about)} |"
    yield ""
    for block in facts.blocks:
        yield f"{block.heading}:"
        yield ""
        yield from ("```text", *block.lines, "```", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
