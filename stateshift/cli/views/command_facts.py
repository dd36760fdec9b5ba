"""The parameters and the help of commands, as values: the manual, the reference page and the
completions are made from these. They are read from the parser, so none of them can say something
else.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAM = "stateshift"


@dataclass(frozen=True)
class Parameter:
    """An argument, or an option with all its spellings. `value` is what stands behind an option,
    empty for a flag.
    """

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
class Block:
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
    blocks: tuple[Block, ...]

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
