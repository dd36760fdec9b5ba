"""A page of `browse` as a value, and the reading of its rows.

    Page     title, facts (blocks of text), and rows below them, or none
    PageRow  a row: its cells, and the page that it opens
    Reading  the rows that hold a text, ROWS at a time, from a stream that may have any length

A page is made, and its rows are read, by functions that are given adapters: a caller that wants no
more of it stops these adapters. Rows are made one by one and never held, but for those on a screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from stateshift.cli.views.text import Block, Cell, Row

if TYPE_CHECKING:
    from stateshift.migration import Adapters

ROWS = 500  # on one screen
SECONDS_BETWEEN = 0.2  # rows are told as they are found, this often


class Listed(Protocol):
    """A row of a page: its cells, the text that a search looks in, and the page behind it."""

    @property
    def cells(self) -> Row: ...
    @property
    def sought(self) -> str: ...
    @property
    def opens(self) -> Opener | None: ...


Opener = Callable[["Adapters"], "Page"]
# Rows in their order. A search may pass over those that cannot hold its text: it yields how many.
Rows = Callable[["Adapters", str], Iterator[Listed | int]]


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a screen. `noun` is one of its rows, and `nouns` are several."""

    title: str
    facts: tuple[Block, ...] = ()
    heads: tuple[str, ...] = ()
    rows: Rows | None = None
    noun: str = "row"
    nouns: str = "rows"


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row of few words."""

    cells: Row
    opens: Opener | None = None

    @property
    def sought(self) -> str:
        """All its cells."""
        return " ".join(text_of(cell) for cell in self.cells)


def text_of(cell: str | Cell) -> str:
    """Return the text of a cell."""
    return cell.text if isinstance(cell, Cell) else cell


def rows_of(choices: list[PageRow]) -> Rows:
    """Return rows that are there already."""
    return lambda adapters, needle: iter(choices)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that were found since the last part, and whether the reading goes on by itself."""

    rows: tuple[Listed, ...]
    goes_on: bool


@dataclass
class Reading:
    """A reading of a page's rows. `seen` are all that were read, `kept` those that hold `needle`;
    `first` is the number of the first one on the screen, among those kept. `more` says that there
    are others, and `stop` asks for its end.
    """

    rows: Iterator[Listed | int]
    needle: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    seen: int = 0
    kept: int = 0
    first: int = 1
    more: bool = False
    over: bool = False
    _next: Listed | None = None

    def window(self) -> Iterator[Part]:
        """Yield the next ROWS rows in parts, as they are found."""
        self.first, self.more, self.over = self.kept + 1, False, False
        found: list[Listed] = []
        if self._next is not None:
            found.append(self._next)
            self.kept += 1
            self._next = None
        told = time.monotonic()
        for row in self.rows:
            if self.stop.is_set():
                break
            if isinstance(row, int):
                self.seen += row
            else:
                self.seen += 1
                if self.needle in row.sought:
                    if self.kept - self.first + 1 == ROWS:
                        self._next, self.more = row, True
                        break
                    self.kept += 1
                    found.append(row)
            now = time.monotonic()
            if now - told > SECONDS_BETWEEN:
                told = now
                yield Part(tuple(found), True)
                found = []
        self.over = True
        yield Part(tuple(found), False)
