"""The recording of a move: a picture of a terminal, made of commands that really ran.

    stateshift/move.svg   one screen for each command, shown one after the other (CSS keyframes)

The picture needs nothing but what draws it: no script, no font of its own. Where nothing moves (a
renderer without CSS animations, or a reader who asked for less motion), the second screen is seen:
the run and its report.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Iterator
from difflib import unified_diff
from html import escape, unescape
from pathlib import Path

import blocks
from readme_pages import ROOT

PICTURE = ROOT / "stateshift" / "move.svg"
COMMANDS = (
    "stateshift plan move.json",
    "stateshift apply move.json --yes --workdir run",
    "stateshift verify run",
    "stateshift rollback run --yes",
)
STILL = 1  # the screen that is seen where nothing moves

COLUMNS = 100
SECONDS_PER_SCREEN = 6
_LINE = 18
_CHARACTER = 7.85
_LEFT = 16
_TOP = 52

_COLOURS = (
    (re.compile(r"^\$ "), "prompt"),
    (re.compile(r"^ *(note|hint):"), "dim"),
    (re.compile(r"^ *warn:"), "warn"),
    (re.compile(r"finished|rolled-back|still holds"), "good"),
    (re.compile(r"█"), "bar"),
)
_STYLE = """
    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
           fill: #d7dce2; white-space: pre; }
    .prompt { fill: #8ec07c; font-weight: bold; } .dim { fill: #8a939e; } .warn { fill: #e5b567; }
    .good { fill: #9ad07c; } .bar { fill: #6fb3e0; }
"""


def check(*, write: bool) -> Iterator[str]:
    """Yield what differs from the picture that is checked in, or draw it anew."""
    screens = recorded()
    known = PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else ""
    before, after = text_of(known), text_of(drawn(screens))
    differences = list(
        unified_diff(before, after, "stateshift/move.svg", "what is printed", lineterm="", n=1)
    )
    if not write:
        yield from differences
    elif differences:
        PICTURE.write_text(drawn(screens), encoding="utf-8")


def recorded() -> list[list[str]]:
    """Run the commands and return the lines of each screen."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        blocks.furnish(folder)
        return [_screen(command, folder) for command in COMMANDS]


def _screen(command: str, folder: Path) -> list[str]:
    lines = [f"$ {command}"]
    for line in blocks.printed_by(command, folder).splitlines():
        lines += textwrap.wrap(
            line,
            COLUMNS,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            drop_whitespace=False,
            break_on_hyphens=False,
        ) or [""]
    return lines


def drawn(screens: list[list[str]]) -> str:
    """Return the picture."""
    width = round(COLUMNS * _CHARACTER + 2 * _LEFT)
    height = _TOP + max(map(len, screens)) * _LINE
    seconds = len(screens) * SECONDS_PER_SCREEN
    share = 100 / len(screens)
    still = "".join(
        f"      .screen-{number} {{ opacity: {int(number == STILL)}; }}\n"
        for number in range(len(screens))
    )
    delays = "".join(
        f"      .screen-{number} {{ animation: show {seconds}s step-end infinite; "
        f"animation-delay: {number * SECONDS_PER_SCREEN}s; }}\n"
        for number in range(len(screens))
    )
    body = "".join(_group(number, lines) for number, lines in enumerate(screens))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'aria-label="A move in a terminal: plan, apply, verify, rollback">\n'
        f"  <style>{_STYLE}{still}"
        f"    @keyframes show {{ 0% {{ opacity: 1; }} {share:g}% {{ opacity: 0; }} }}\n"
        "    @media (prefers-reduced-motion: no-preference) {\n"
        f"      .screen {{ opacity: 0; }}\n{delays}"
        "    }\n"
        "  </style>\n"
        f'  <rect width="{width}" height="{height}" rx="8" fill="#1b1f24"/>\n'
        '  <circle cx="20" cy="18" r="6" fill="#e5675f"/><circle cx="40" cy="18" r="6" '
        'fill="#e5b567"/><circle cx="60" cy="18" r="6" fill="#8ec07c"/>\n'
        f"{body}</svg>\n"
    )


def _group(number: int, lines: list[str]) -> str:
    rows = "".join(
        f'    <text x="{_LEFT}" y="{_TOP + row * _LINE}">{_marked(line)}</text>\n'
        for row, line in enumerate(lines)
    )
    return f'  <g class="screen screen-{number}">\n{rows}  </g>\n'


def _marked(line: str) -> str:
    """Return the line as SVG, with its colours."""
    for pattern, name in _COLOURS:
        match = pattern.search(line)
        if match is None:
            continue
        end = len(line) if name in ("bar", "dim") else match.end()
        before, marked, after = line[: match.start()], line[match.start() : end], line[end:]
        return f'{escape(before)}<tspan class="{name}">{escape(marked)}</tspan>{escape(after)}'
    return escape(line)


def text_of(picture: str) -> list[str]:
    """Return the lines that the picture shows, without what differs from run to run."""
    shown = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    text = "\n".join(unescape(re.sub(r"<[^>]+>", "", line)) for line in shown)
    return blocks.shape(f"{text}\n").splitlines()
