"""What is shown, as values, and the two ways to show it: plain lines, and colours at a terminal.

    Line     one line, with the tone it is said in
    Table    rows below heads; without heads a list of `label  value`
    Gap      an empty line

Renderers (`render_*`) make tuples of these from the program's values and know of no terminal;
`Terminal` prints them. The words are the same both ways. rich is imported only where colours are.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType

Tone = Literal["", "strong", "dim", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    tone: Tone = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    pass


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`heads` that begin with `>` stand above numbers and are set to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    indent: int = 2

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(head.removeprefix(">") for head in self.heads)

    @property
    def titled(self) -> bool:
        return any(self.titles)


Block = Line | Gap | Table


def pairs(*rows: tuple[str, str | Cell] | None, indent: int = 2) -> Table:
    """`label  value`, a line each; None rows are left out."""
    return Table(("", ""), tuple(row for row in rows if row is not None), indent)


def section(title: str, *blocks: Block) -> tuple[Block, ...]:
    """Blocks below a title, with a gap before; nothing at all where there are none."""
    return (Gap(), Line(title, "strong"), *blocks) if blocks else ()


def compact_json(value: object) -> str:
    """Return a key or a value on one line: a text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


# ---- plain ---------------------------------------------------------------------------------------


def plain_text(blocks: Iterable[Block]) -> str:
    """Lines without colours and without a width: nothing is wrapped, so that a program can
    search them.
    """
    lines = [line.rstrip() for block in blocks for line in _plain(block)]
    return "\n".join(lines) + "\n" if lines else ""


def _plain(block: Block) -> Iterator[str]:
    match block:
        case Gap():
            yield ""
        case Line():
            yield from (" " * block.indent + line for line in lines_of(block.text))
        case Table():
            yield from _plain_table(block)


def _plain_table(table: Table) -> Iterator[str]:
    rows = [[_text(cell) for cell in row] for row in table.rows]
    if table.titled:
        rows.insert(0, list(table.titles))
    if not rows:
        return
    widths = [max(_width(row[i]) for row in rows) for i in range(len(table.heads))]
    for row in rows:
        cells = [
            _set(cell, widths[i], table.heads[i].startswith(">")) for i, cell in enumerate(row)
        ]
        yield " " * table.indent + "  ".join(cells)


def _text(cell: str | Cell) -> str:
    return harmless(cell.text if isinstance(cell, Cell) else cell).replace("\n", " ")


# What moves a terminal's cursor, or the direction of its text. Much of what we show comes out of
# files.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text with characters that would do something, rather than be seen, as escapes."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def lines_of(text: str) -> list[str]:
    """Return the lines that a text is shown as. Only a log begins lines of its own, behind `…:` and
    a newline, and each of them behind a bar; a newline in a name is an escape, so that no name
    passes for something that we say.
    """
    head, log_follows, log = text.partition(":\n")
    first = harmless(head).replace("\n", "\\n")
    if not log_follows:
        return [first]
    return [f"{first}:", *(f"  | {harmless(line)}" for line in log.split("\n"))]


def _set(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _width(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


# Longer tables are shown plainly, line by line: laying one out in colours takes seconds.
ROWS_MAX = 1000

# ---- at a terminal -------------------------------------------------------------------------------

STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
}


def coloured(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """The same as rich renderables: wrapped to the terminal's width, never cut."""
    from rich.padding import Padding
    from rich.text import Text

    for block in blocks:
        match block:
            case Gap():
                yield Text("")
            case Line():
                text = Text("\n".join(lines_of(block.text)), STYLES[block.tone], overflow="fold")
                yield Padding(text, (0, 0, 0, block.indent), expand=False)
            case Table() if len(block.rows) > ROWS_MAX:
                yield from (Text(line.rstrip(), overflow="fold") for line in _plain_table(block))
            case Table():
                yield Padding(_rich_table(block), (0, 0, 0, block.indent), expand=False)


def _rich_table(table: Table) -> RenderableType:
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=None, show_header=table.titled, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False
    )
    for i, (head, title) in enumerate(zip(table.heads, table.titles, strict=True)):
        right, label = head.startswith(">"), i == 0 and not table.titled
        made.add_column(
            title,
            justify="right" if right else "left",
            no_wrap=right or label,
            overflow="fold",
            style="dim" if label else "",
        )
    for row in table.rows:
        made.add_row(*(Text(_text(c), STYLES[c.tone] if isinstance(c, Cell) else "") for c in row))
    return made


def table_or_nothing(
    heads: tuple[str, ...], rows: Sequence[tuple[str | Cell, ...]]
) -> Iterator[Block]:
    """Yield a table without its empty columns, if it has a row."""
    if rows:
        yield without_empty(Table(heads, tuple(rows)))


def without_empty(table: Table) -> Table:
    """Return the table without the columns that are empty in every row."""
    kept = [i for i in range(len(table.heads)) if any(_filled(row[i]) for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(tuple(table.heads[i] for i in kept), rows, table.indent)


def _filled(cell: str | Cell) -> bool:
    return bool(cell.text if isinstance(cell, Cell) else cell)
