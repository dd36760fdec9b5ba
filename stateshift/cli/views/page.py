"""Parts of a page that can be sent around: one file, nothing loaded, no script. Values in, markup
out.

Elements are text, HTML's and SVG's alike: well-formed as XML, and nothing that was said becomes
one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from stateshift.cli.views.text import Cell, Row, Tone, harmless
from stateshift.cli.views.units import number
from stateshift.storage.locations import redact

FIRST, LAST = 1, 10  # rows of a long table
LINES_MAX = 100

# The look of a page: on a screen in light and in dark, on a narrow one, and on paper. It says its
# meaning in words as well as in colours.
STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1c2430; --dim: #5a6675; --line: #dbe1e8; --box: #f5f7fa;
  --phase: #4a6fb5; --round: #1f9384; --left: #b7791f; --down: #d03c4a; --inside: #fff;
  --good: #1a7f37; --warn: #8a5a00; --bad: #bd2130; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14181f; --ink: #e5e9ef; --dim: #9ca8b7; --line: #2c3542; --box: #1c222b;
  --phase: #84a4ea; --round: #48c1b0; --left: #e0ab4f; --down: #ff7683; --inside: #10141a;
  --good: #5fd07d; --warn: #e6b450; --bad: #ff8590; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--paper);
  color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-size: 1.25rem;
  overflow-wrap: anywhere; }
h3 { margin: 1.6rem 0 .4rem; font-size: 1rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.dim, footer { color: var(--dim); }
footer { margin-top: 2.5rem; font-size: .85rem; }
.state { display: inline-block; margin-left: .5rem; padding: .1rem .6rem;
  border: 1px solid currentColor;
  border-radius: 1rem; font-size: .85rem; font-weight: 600; vertical-align: middle;
  white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem;
  margin: 1.1rem 0; }
.tiles > div { padding: .7rem .9rem; background: var(--box); border: 1px solid var(--line);
  border-radius: .5rem; }
.tiles dt { color: var(--dim); font-size: .85rem; }
.tiles dd { margin: 0; font-size: .85rem; overflow-wrap: anywhere; }
.tiles dd.value { font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.failed { margin: 1rem 0; padding: .7rem .9rem; border: 1px solid var(--bad);
  border-left-width: 5px;
  border-radius: .3rem; }
.failed p { white-space: pre-line; }
ul { margin: .3rem 0; padding-left: 1.3rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 500; text-align: left; vertical-align: bottom; }
th, td { padding: .28rem .7rem .28rem 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
td { white-space: nowrap; } td.text { white-space: normal; overflow-wrap: break-word; }
.number { text-align: right; }
td.drawn { width: 40%; min-width: 8rem; }
td.between { color: var(--dim); text-align: center; }
figure { margin: 1rem 0 0; } figcaption { margin-bottom: .4rem; color: var(--dim);
  font-size: .88rem; }
svg { display: block; overflow: visible; font: 12px system-ui, -apple-system, "Segoe UI", Roboto,
  sans-serif; }
svg.picture { margin-left: 84px; width: calc(100% - 100px); }
svg.strip { width: 100%; }
svg text { fill: var(--ink); stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }
svg .end { text-anchor: end; } svg .mid, svg .tick { text-anchor: middle; }
svg .tick, svg .small, svg .title { fill: var(--dim); }
svg .beside { transform: translateX(5px); } svg .before { transform: translateX(-5px); }
svg .inside { fill: var(--inside); stroke: none; } svg .alarm { fill: var(--bad);
  font-weight: 600; }
.grid { stroke: var(--line); } .axis { stroke: var(--dim); }
.bar { fill: var(--phase); stroke: var(--phase); stroke-width: 1.5; }
.bar.round { fill: var(--round); stroke: var(--round); } .bar.even { fill-opacity: .6;
  stroke-opacity: .6; }
.bar.down { fill: var(--down); stroke: var(--down); }
.bar.torn { fill: var(--box); stroke: var(--bad); stroke-dasharray: 4 3; }
.bar.undone { fill: var(--box); stroke: var(--dim); stroke-dasharray: 2 3; }
.band { fill: var(--down); fill-opacity: .14; stroke: var(--down); stroke-opacity: .7; }
.mark { stroke: var(--ink); stroke-dasharray: 3 3; } svg .steer { font-weight: 600; }
.curve { fill: none; stroke: var(--phase); stroke-width: 1.8; vector-effect: non-scaling-stroke; }
.area { fill: var(--phase); fill-opacity: .13; }
.curve.left { stroke: var(--left); } .area.left { fill: var(--left); }
@media (max-width: 30rem) {
  body { padding: 1rem .75rem 2rem; } h1 { font-size: 1.3rem; }
  table { font-size: .75rem; } th, td { padding-right: .4rem; }
  .tiles { gap: .5rem; } svg { font-size: 11px; } svg.picture { margin-left: 68px;
  width: calc(100% - 80px); } }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { padding: 0; max-width: none; font-size: 10pt; } .wide { overflow: visible; }
  td.text { overflow-wrap: anywhere; }
  figure, tr, .failed, .tiles > div { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""


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
    """Return a table, numbers below `>`; of a long one the ends, and `kept_in` has the rest."""
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
    cells = []
    for head, cell in zip(heads, row, strict=True):
        text, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "")
        cells.append(tag("td", escape(text), class_=f"{_kind(head)} {tone}".strip()))
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


def _kind(head: str) -> str:
    return "number" if head.startswith(">") else "text"


def bullets(lines: Sequence[str], kept_in: str = "report.json") -> str:
    """Return a list; of a long one the first lines."""
    shown = [tag("li", escape(line)) for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        shown.append(tag("li", f"{number(len(lines) - LINES_MAX)} more, in {kept_in}"))
    return tag("ul", *shown)


# ---- elements

# Halves of characters (names of files that are no text) and what no XML may hold.
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Return text as it may stand between tags, whoever wrote it."""
    shown = _NO_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", harmless(redact(text)))
    return html.escape(shown)


def tag(element: str, *inner: str, **attributes: str | float) -> str:
    """Return an element; `inner` is markup. `class_` is `class`, `text_anchor` `text-anchor`."""
    written = ""
    for name, value in attributes.items():
        text = escape(value) if isinstance(value, str) else f"{value:g}"
        written += f' {name.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{element}{written}>{''.join(inner)}</{element}>"


def percent(share: float) -> str:
    """Return a length in percent of the width."""
    return f"{share:.2f}".rstrip("0").rstrip(".") + "%"
