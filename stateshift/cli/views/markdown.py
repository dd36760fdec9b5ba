"""The output as Markdown, for a pull request: the same blocks, the same words.

Nothing in a name becomes a link, a picture, HTML or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stateshift.cli.views.text import Block, Cell, Gap, Line, TextTable, harmless, lines_of

_MEANT = re.compile(r"[\\`*_\[\]<>#|~&$]|^[-+=]")
_NUMBERED = re.compile(r"^(\d+)([.)])")
_MENTION = re.compile(r"([@#])(?=\w)")
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
COMMAND = "stateshift "


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
                lines += _lines(block)
            case TextTable():
                lines += ["", *_table(block), ""]
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" if lines else ""


def _lines(line: Line) -> Iterator[str]:
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


def _table(table: TextTable) -> Iterator[str]:
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
