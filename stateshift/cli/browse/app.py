"""The terminal of `browse`: a screen for each page, by textual. Nothing here reads an image or a
run: pages and their rows are made in threads, and come as messages. A thread that is no longer
wanted ends at its next access to a storage; nobody waits for it.

All that is shown is text, also where it looks like markup: cells and lines are rich's `Text`, with
the characters that a terminal would obey as escapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

from rich.console import Group, JustifyMethod
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from stateshift.cli.browse.page import Listed, Opener, Page, Part, Reading, text_of
from stateshift.cli.shell.failing import describe_error, ours
from stateshift.cli.views.text import (
    STYLES,
    Block,
    Cell,
    Line,
    TextTable,
    harmless,
    pairs,
    rich_blocks,
)
from stateshift.cli.views.units import many, number
from stateshift.errors import Interrupted, StateshiftError
from stateshift.migration import Adapters
from stateshift.migration.adapters import interruptible

CELL_MAX = 48  # letters of a cell that is not the last, on a narrow screen
LAST_CELL_MAX = 200
LINES_MAX = 1000  # of one text, or of one table in it
KEYS = (
    ("up, down, page up, page down", "move"),
    ("left, right", "move sideways, in wide tables"),
    ("Enter, or a second click", "open the row"),
    ("Esc", "stop what is being read; leave a search; go back"),
    ("/", "search: the rows that hold a text; of entries, those whose key does"),
    ("m", "the next rows, where there are more than one screen holds"),
    ("r", "read again"),
    ("q", "quit"),
)


class Opened(Message):
    """A page that a thread has made; `asked` is what would have stopped it."""

    def __init__(self, asked: threading.Event, page: Page) -> None:
        super().__init__()
        self.asked, self.page = asked, page


class Found(Message):
    """Rows that a thread has found, or the error that ended it."""

    def __init__(self, reading: Reading, part: Part, error: StateshiftError | None = None) -> None:
        super().__init__()
        self.reading, self.part, self.error = reading, part, error


class PageScreen(Screen[None]):
    """A page, what is read of its rows, and the search among them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("slash", "search", "Search"),
        Binding("m", "more", "More"),
        Binding("r", "again", "Read again"),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, opens: Opener, page: Page | None = None) -> None:
        super().__init__()
        self._opens = opens
        self._page = page
        self._reading: Reading | None = None
        self._opening = threading.Event()
        self._shown: list[Listed] = []

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(id="facts"):
            yield Static(id="lines")
        table: DataTable[Text] = DataTable(cursor_type="row", id="rows")
        yield table
        yield Static(id="status")
        yield Input(id="search", placeholder="text; Enter searches, Esc leaves")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        if self._page is None:
            self.action_again()
        else:
            self._show(self._page)

    def on_unmount(self) -> None:
        self._stop()

    # ---- what is shown

    def _show(self, page: Page) -> None:
        self._page = page
        self.query_one("#title", Static).update(_text(page.title, "bold"))
        self._show_facts(page.facts)
        facts, table = self.query_one("#facts"), self.query_one(DataTable)
        table.display = page.rows is not None
        facts.set_class(page.rows is not None, "above")
        if page.rows is None:
            facts.focus()
            self._say("")
            return
        table.focus()
        self._read("")

    def _show_facts(self, facts: Iterable[Block]) -> None:
        blocks = _beginning(facts)
        self.query_one("#lines", Static).update(Group(*rich_blocks(blocks)))
        self.query_one("#facts").display = bool(blocks)

    def _say(self, words: str) -> None:
        self.query_one("#status", Static).update(_text(words, "dim"))

    def on_opened(self, message: Opened) -> None:
        """Show a page, unless another one was asked for meanwhile."""
        if message.asked is self._opening:
            self._show(message.page)

    def on_found(self, message: Found) -> None:
        """Show rows as they come."""
        if message.reading is not self._reading:
            return
        table = self.query_one(DataTable)
        for row in message.part.rows:
            cells = self._cells(row)
            for column, cell in zip(table.ordered_columns, cells, strict=True):
                column.width = max(column.width, cell.cell_len)  # before it is drawn
            self._shown.append(row)
            table.add_row(*cells)
        if message.error is not None:
            self._show_facts(describe_error(message.error))
        self._say(self._words(message))

    def _cells(self, row: Listed) -> list[Text]:
        """Return the cells as they are drawn: numbers to the right, and only the last is long."""
        assert self._page is not None, "rows are of a page"
        drawn: list[Text] = []
        cell_max = max(CELL_MAX, self.size.width * 2 // 5)
        for head, cell in zip(self._page.heads, row.cells, strict=True):
            most = LAST_CELL_MAX if len(drawn) == len(row.cells) - 1 else cell_max
            words = text_of(cell)
            shown = words if len(words) <= most else f"{words[:most]}…"
            style = STYLES[cell.tone] if isinstance(cell, Cell) else ""
            drawn.append(_text(shown, style, head))
        return drawn

    def _words(self, message: Found) -> str:
        """Return the line below the rows: which ones these are, and how many were read."""
        page, reading = self._page, message.reading
        assert page is not None, "rows are of a page"
        seen = many(reading.seen, page.noun, page.nouns)
        if reading.needle:
            said = f"{number(reading.kept)} of {seen} read with {reading.needle!r}"
        elif reading.kept > len(self._shown) or reading.more:
            said = f"{page.nouns} {number(reading.first)} to {number(reading.kept)}"
        else:
            said = seen
        if message.part.goes_on:
            return f"{said}; reading: Esc stops"
        if message.error is not None:
            return f"{said}; the reading ended with an error"
        if reading.stop.is_set():
            return f"{said}; stopped"
        return f"{said}; there are more: m shows the next, / searches" if reading.more else said

    # ---- what is read

    def _stop(self) -> None:
        self._opening.set()
        if self._reading is not None:
            self._reading.stop.set()

    def _read(self, needle: str) -> None:
        """Read the rows that hold this text, from the first one on."""
        page = self._page
        assert page is not None and page.rows is not None, "only pages with rows are searched"
        self._stop()
        self._show_facts(page.facts)  # an error may stand there
        stop = threading.Event()
        rows = page.rows(interruptible(self._adapters, stop), needle)
        self._reading = Reading(rows, needle, stop)
        self._read_on(self._reading)

    def _read_on(self, reading: Reading) -> None:
        """Show the next rows of a reading, in place of those that are shown."""
        assert self._page is not None, "rows are of a page"
        table = self.query_one(DataTable)
        table.clear(columns=True)
        for head in self._page.heads:
            title = _text(head.removeprefix(">"), "dim", head)
            table.add_column(title, width=title.cell_len)
        self._shown = []
        self._say("reading: Esc stops")

        def find() -> None:
            try:
                for part in reading.window():
                    self.post_message(Found(reading, part))
            except Exception as caught:
                error = _ours(caught)
                reading.over = True
                told = None if isinstance(error, Interrupted) else error
                self.post_message(Found(reading, Part((), goes_on=False), told))

        self._in_thread(find)

    def _in_thread(self, work: Callable[[], None]) -> None:
        """Do it in a thread that nobody waits for. A bug of ours ends the program."""
        app = self.app

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                app.call_later(app.exit, error)

        threading.Thread(target=guarded, daemon=True).start()

    @property
    def _adapters(self) -> Adapters:
        assert isinstance(self.app, Browser), "a screen of ours"
        return self.app.given

    # ---- what the user asks for

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the row."""
        opens = self._shown[event.cursor_row].opens if event.cursor_row < len(self._shown) else None
        if opens is not None:
            self.app.push_screen(PageScreen(opens))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search what was written; an empty text leaves the search."""
        event.input.display = False
        self.query_one(DataTable).focus()
        self._read(event.value)

    def action_search(self) -> None:
        """Ask for the text."""
        if self._page is not None and self._page.rows is not None:
            box = self.query_one(Input)
            box.display = True
            box.focus()

    def action_more(self) -> None:
        """Show the next rows."""
        if self._reading is not None and self._reading.over and self._reading.more:
            self._read_on(self._reading)

    def action_again(self) -> None:
        """Make the page again."""
        self._stop()
        self._reading = None
        self._opening = threading.Event()
        self.query_one("#title", Static).update(_text("reading …", "dim"))
        self._say("reading: Esc stops")
        asked = self._opening

        def make() -> None:
            try:
                page = self._opens(interruptible(self._adapters, asked))
            except Exception as caught:
                page = Page("it cannot be shown", tuple(describe_error(_ours(caught))))
            self.post_message(Opened(asked, page))

        self._in_thread(make)

    def action_help(self) -> None:
        """Show the keys."""
        page = Page("keys", (pairs(*KEYS),))
        self.app.push_screen(PageScreen(lambda adapters: page, page))

    def action_back(self) -> None:
        """Leave what was begun last: the box, a reading, a search, the page."""
        box, reading = self.query_one(Input), self._reading
        if box.display:
            box.display = False
            self.query_one(DataTable).focus()
        elif reading is not None and not reading.over and not reading.stop.is_set():
            reading.stop.set()
            self._say("stopping after the current read; Esc goes back")
        elif reading is not None and reading.needle:
            self._read("")
        elif len(self.app.screen_stack) > 2:  # textual has one of its own below ours
            self.app.pop_screen()
        else:
            self._stop()


class Browser(App[Exception]):
    """The program at the terminal. It ends with the error that was a bug of ours, if one was."""

    ENABLE_COMMAND_PALETTE = False  # it would offer to write a picture of the screen
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]
    CSS = """
    #title, #status { height: 1; padding: 0 1; }
    #title { background: $panel; }
    #facts { height: 1fr; scrollbar-size-vertical: 1; }
    #facts.above { height: auto; max-height: 50%; }
    #rows { height: 1fr; }
    #search { height: 3; }
    """

    def __init__(self, opens: Opener, page: Page, given: Adapters) -> None:
        super().__init__()
        self.given = given
        self._first = PageScreen(opens, page)

    def on_mount(self) -> None:
        """Show the first page."""
        self.push_screen(self._first)


def _ours(caught: Exception) -> StateshiftError:
    """Return the error as one of ours; raise a bug."""
    error = ours(caught)
    if error is None:
        raise caught
    return error


def _beginning(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks: of those that are long, the beginning."""
    drawn: list[Block] = []
    for block in blocks:
        drawn.append(block)
        if isinstance(block, TextTable) and len(block.rows) > LINES_MAX:
            drawn[-1] = replace(block, rows=block.rows[:LINES_MAX])
            drawn.append(Line(f"… the first {LINES_MAX:,} of {number(len(block.rows))}"))
    if len(drawn) > LINES_MAX:
        drawn[LINES_MAX:] = [Line(f"… the first {LINES_MAX:,} of {number(len(drawn))}")]
    return drawn


def _text(words: str, style: str, head: str = "") -> Text:
    """Return words on one line; below a head of numbers, to the right."""
    shown = harmless(words).replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()
    side: JustifyMethod = "right" if head.startswith(">") else "left"
    return Text(shown, style, justify=side, no_wrap=True, overflow="ellipsis")


def run(opens: Opener, adapters: Adapters) -> None:
    """Show the page, and those that it opens, until the user quits.

    Raises:
        StateshiftError: the first page cannot be made.
    """
    browser = Browser(opens, opens(adapters), adapters)
    error = browser.run()
    if error is not None:
        raise error
