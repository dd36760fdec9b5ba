"""The output as values, and the ways to show it: plain lines, colours at a terminal, Markdown; and
the rows of a document as CSV or JSON lines.

    Line       one line, with the tone it is said in
    TextTable  rows below heads; without heads a list of `label  value`
    Gap        an empty line

Views (`*_text.py`) make these from the program's values and know of no terminal; `Terminal` prints
them. The words are the same each way. rich is imported only where colours are.

Markdown is for a pull request: nothing in a name becomes a link, a picture, HTML or a mention. CSV
is for a spreadsheet: no name becomes a formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


Tone = Literal["", "strong", "dim", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; a line break inside it starts another line with the same indent."""

    text: str
    tone: Tone = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """An empty line between two blocks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell that has a tone; a plain text is a cell without one."""

    text: str
    tone: Tone = ""


Row = tuple[str | Cell, ...]


@dataclass(frozen=True, slots=True)
class TextTable:
    """`heads` that begin with `>` stand above numbers and are set to the right."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    indent: int = 2

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(head.removeprefix(">") for head in self.heads)

    @property
    def titled(self) -> bool:
        return any(self.titles)


Block = Line | Gap | TextTable


def pairs(*rows: tuple[str, str | Cell] | None, indent: int = 2) -> TextTable:
    """Return a table of `label  value`, a line each; None rows are left out."""
    return TextTable(("", ""), tuple(row for row in rows if row is not None), indent)


def section(title: str, *blocks: Block) -> tuple[Block, ...]:
    """Return blocks below a title, with a gap before; nothing at all where there are none."""
    return (Gap(), Line(title, "strong"), *blocks) if blocks else ()


def compact_json(value: object) -> str:
    """Return a key or a value on one line: a text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


# ---- plain ---------------------------------------------------------------------------------------


def plain_text(blocks: Iterable[Block]) -> str:
    """Return lines without colours. Nothing is wrapped, so that a program can search them."""
    lines: list[str] = []
    for block in blocks:
        match block:
            case Gap():
                lines.append("")
            case Line():
                own = (" " * block.indent + line for line in lines_of(block.text))
                lines.extend(line.rstrip() for line in own)
            case TextTable():
                lines.extend(line.rstrip() for line in _plain_table(block))
    return "\n".join(lines) + "\n" if lines else ""


def _plain_table(table: TextTable) -> Iterator[str]:
    rows = [tuple(map(_text, row)) for row in table.rows]
    if table.titled:
        rows.insert(0, table.titles)
    if not rows:
        return
    columns = zip(*rows, strict=True)
    widths = [max(map(_width, column)) for column in columns]
    is_number = [head.startswith(">") for head in table.heads]
    for row in rows:
        cells = []
        for text, width, is_right in zip(row, widths, is_number, strict=True):
            blanks = " " * (width - _width(text))
            cells.append(blanks + text if is_right else text + blanks)
        yield " " * table.indent + "  ".join(cells)


def _text(cell: str | Cell) -> str:
    return harmless(cell.text if isinstance(cell, Cell) else cell).replace("\n", " ")


# The characters that move a terminal's cursor, or the direction of its text. Much of what we show
# comes out of files.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return the text with characters that would do something, rather than be seen, as escapes."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def lines_of(text: str) -> list[str]:
    """Return a text's lines. Only a log begins lines of its own, behind `…:` and a newline, each
    after a bar: no name passes for something that we say.
    """
    head, log_follows, log = text.partition(":\n")
    first = harmless(head).replace("\n", "\\n")
    if not log_follows:
        return [first]
    return [f"{first}:", *(f"  | {harmless(line)}" for line in log.split("\n"))]


def _width(text: str) -> int:
    """Return the columns on a terminal: 2 for East Asian wide characters, 0 for combining ones."""
    if text.isascii():
        return len(text)
    columns = 0
    for character in text:
        if not unicodedata.combining(character):
            columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return columns


COMMAND = "stateshift "
# A line with a command that somebody may copy.
_HOLDS_COMMAND = re.compile(rf"^hint: |\b{COMMAND}")

# Longer tables are shown plainly, line by line: laying one out in colours takes seconds.
ROWS_MAX = 1000
NAME_MAX = 40

# ---- at a terminal -------------------------------------------------------------------------------

STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
}


def rich_blocks(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """Yield the same as rich renderables: wrapped to the terminal's width, never cut. A line
    with a command is not wrapped: it could not be pasted.
    """
    for block in blocks:
        match block:
            case Gap():
                yield _rich_text("")
            case Line() if _HOLDS_COMMAND.search(block.text):
                for line in lines_of(block.text):
                    yield _rich_text(" " * block.indent + line, block.tone, is_wrapped=False)
            case Line():
                text = _rich_text("\n".join(lines_of(block.text)), block.tone)
                yield _indented(text, block.indent)
            case TextTable() if len(block.rows) > ROWS_MAX or _lists_commands(block):
                is_wrapped = not _lists_commands(block)
                for line in _plain_table(block):
                    yield _rich_text(line.rstrip(), is_wrapped=is_wrapped)
            case TextTable():
                yield _indented(_rich_table(block), block.indent)


def _lists_commands(table: TextTable) -> bool:
    """Return whether its rows are commands, beside what they are for."""
    return not table.titled and any(_text(row[-1]).startswith(COMMAND) for row in table.rows)


def _rich_text(text: str, tone: Tone = "", is_wrapped: bool = True) -> Text:
    from rich.text import Text

    overflow: Literal["fold", "ignore"] = "fold" if is_wrapped else "ignore"
    return Text(text, STYLES[tone], overflow=overflow, no_wrap=not is_wrapped)


def _indented(renderable: RenderableType, indent: int) -> RenderableType:
    from rich.padding import Padding

    return Padding(renderable, (0, 0, 0, indent), expand=False)


def _rich_table(table: TextTable) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(
        box=None, show_header=table.titled, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False
    )
    for place, (head, title) in enumerate(zip(table.heads, table.titles, strict=True)):
        is_number = head.startswith(">")
        # A name is copied: as long as it leaves half of a terminal, it is not broken.
        longest = max((len(_text(row[place])) for row in table.rows), default=0)
        is_label = place == 0 and (longest <= NAME_MAX or not table.titled)
        rich_table.add_column(
            title,
            justify="right" if is_number else "left",
            no_wrap=is_number or is_label,
            overflow="fold",
            style="" if table.titled or place else "dim",
        )
    for row in table.rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        rich_table.add_row(*(Text(_text(cell), STYLES[cell.tone]) for cell in cells))
    return rich_table


def table_or_nothing(heads: tuple[str, ...], rows: Sequence[Row]) -> Iterator[Block]:
    """Yield a table without its empty columns, if it has a row."""
    if rows:
        yield without_empty(TextTable(heads, tuple(rows)))


def without_empty(table: TextTable) -> TextTable:
    """Return the table without the columns that are empty in every row."""
    kept = []
    for column in range(len(table.heads)):
        cells = (row[column] for row in table.rows)
        if any(cell.text if isinstance(cell, Cell) else cell for cell in cells):
            kept.append(column)
    rows = [tuple(row[column] for column in kept) for row in table.rows]
    heads = tuple(table.heads[column] for column in kept)
    return TextTable(heads, tuple(rows), table.indent)


# ---- Markdown

_MEANT = re.compile(r"[\\`*_\[\]<>#|~&$]|^[-+=]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")  # what begins a list; 0.94 s does not
_MENTION = re.compile(r"([@#])(?=\w)")
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown_text(blocks: Iterable[Block]) -> str:
    """Return the blocks as Markdown; the first line is the heading."""
    lines: list[str] = []
    for block in blocks:
        match block:
            case Gap():
                lines.append("")
            case Line() if not lines:
                lines += [f"### {_escaped(lines_of(block.text)[0])}", ""]
            case Line():
                lines += _markdown_lines(block)
            case TextTable():
                lines += ["", *_markdown_table(block), ""]
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" if lines else ""


def _markdown_lines(line: Line) -> Iterator[str]:
    first, *log = lines_of(line.text)
    bullet = f"{' ' * (line.indent - 2)}*"
    if line.indent == 0 and line.tone == "strong":
        yield from ("", f"**{_escaped(first)}**", "")
    elif line.indent == 0:
        yield from ("", _escaped(first))
    elif line.text.startswith(COMMAND) and not log:
        yield f"{bullet} {_code(first)}"
    else:
        yield f"{bullet} {_escaped(first)}"
    for each in log:
        yield f"{' ' * line.indent}{_code(each.removeprefix('  | '))}  "


def _markdown_table(table: TextTable) -> Iterator[str]:
    if not table.rows:
        return
    yield f"| {' | '.join(map(_escaped, table.titles))} |"
    marks = ["---:" if head.startswith(">") else "---" for head in table.heads]
    yield f"| {' | '.join(marks)} |"
    for row in table.rows:
        texts = [cell.text if isinstance(cell, Cell) else cell for cell in row]
        cells = [_escaped(harmless(text).replace("\n", " ")) for text in texts]
        yield f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Return text in which no character means anything to Markdown, HTML or a forge."""
    escaped = _MEANT.sub(lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), text.strip())
    return _MENTION.sub(r"\1<!-- -->", _NUMBERED.sub(r"\1\\\2", escaped))


def _code(text: str) -> str:
    """Return text as code, between more backticks than it has in a row."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


# ---- rows of a document --------------------------------------------------------------------------

# A spreadsheet computes what begins so, and names are other people's: an apostrophe before it says
# that it is text (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")  # of a decimal, which JSON has as text


def csv_text(rows: Sequence[Mapping[str, object]], heads: Sequence[str] = ()) -> str:
    """Return rows as CSV, below the names of all columns: `heads`, and what the rows have besides.
    An object's keys are columns of their own, `key.word`; a list is JSON.
    """
    flat = [dict(_columns_of(row)) for row in rows]
    names = {} if flat else dict.fromkeys(heads)
    for row in flat:
        names |= dict.fromkeys(row)
    if not names:
        return ""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    writer.writerows([_csv_cell(row.get(name)) for name in names] for row in flat)
    return written.getvalue()


def jsonl_text(rows: Sequence[object]) -> str:
    """Return rows as JSON, a line each."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def _columns_of(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping) or (name and not value):
        yield name, value
        return
    for key, inner in value.items():
        yield from _columns_of(inner, f"{name}.{key}" if name else str(key))


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    text = harmless(value)
    is_formula = value.startswith(_FORMULA) and _NUMBER.fullmatch(value) is None
    return f"'{text}" if is_formula else text
