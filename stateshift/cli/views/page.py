"""Parts of a page that can be sent around: one file, nothing loaded, no script. Values in, markup
out.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.cli.views.markup import escape, tag
from stateshift.cli.views.run_html_style import STYLE
from stateshift.cli.views.text import Cell, Row, Tone
from stateshift.cli.views.units import number

FIRST, LAST = 1, 10  # rows of a long table
LINES_MAX = 100


def whole_page(title: str, *body: str) -> str:
    """Return the page that has this body."""
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", escape(title)),
        tag("style", STYLE),
    )
    return f"<!DOCTYPE html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def tile(label: str, value: str, *lines: str) -> str:
    """Return a number that everybody asks for, with lines below it."""
    below = (tag("dd", escape(line)) for line in lines)
    return tag("div", tag("dt", escape(label)), tag("dd", escape(value), class_="value"), *below)


def chip(word: str, tone: Tone) -> str:
    """Return a word in a frame, beside a heading."""
    return tag("span", escape(word), class_=f"state {tone}")


def table(heads: Sequence[str], rows: Sequence[Row], kept_in: str = "") -> str:
    """Return a table: numbers to the right, below heads that begin with `>`. A long one has the
    first and the last rows; `kept_in` is the file that has the others.
    """
    lines = [_row(heads, row) for row in rows]
    return _table(_titles(heads), _shortened(lines, len(heads), kept_in))


def table_of_pictures(
    heads: Sequence[str], rows: Sequence[Row], title: str, pictures: Sequence[str]
) -> str:
    """Return a table with a picture behind each row."""
    cells = [tag("td", picture, class_="drawn") for picture in pictures]
    lines = [_row(heads, row, cell) for row, cell in zip(rows, cells, strict=True)]
    return _table([*_titles(heads), tag("th", escape(title))], lines)


def _titles(heads: Sequence[str]) -> list[str]:
    return [tag("th", escape(head.removeprefix(">")), class_=_kind(head)) for head in heads]


def _table(titles: Sequence[str], lines: Sequence[str]) -> str:
    inner = tag("thead", tag("tr", *titles)) + tag("tbody", *lines)
    return tag("div", tag("table", inner), class_="wide")


def _row(heads: Sequence[str], row: Row, *more: str) -> str:
    cells = [_cell(cell, head) for head, cell in zip(heads, row, strict=True)]
    return tag("tr", *cells, *more)


def _shortened(lines: list[str], columns: int, kept_in: str) -> list[str]:
    """Return the lines of a table: of a long one the first and the last ones."""
    between = len(lines) - FIRST - LAST
    if between <= 1:
        return lines
    where = f", in {kept_in}" if kept_in else ""
    words = f"{number(between)} more between{where}"
    gap = tag("tr", tag("td", words, class_="between", colspan=columns))
    return [*lines[:FIRST], gap, *lines[-LAST:]]


def _cell(cell: str | Cell, head: str) -> str:
    text, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "")
    return tag("td", escape(text), class_=f"{_kind(head)} {tone}".strip())


def _kind(head: str) -> str:
    return "number" if head.startswith(">") else "text"


def bullets(lines: Sequence[str], kept_in: str = "report.json") -> str:
    """Return a list; of a long one the first lines."""
    shown = [tag("li", escape(line)) for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        shown.append(tag("li", f"{number(len(lines) - LINES_MAX)} more, in {kept_in}"))
    return tag("ul", *shown)
