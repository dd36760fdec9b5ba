import io

import pytest
from rich.console import Console

from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.text import (
    Cell,
    Gap,
    Line,
    TextTable,
    pairs,
    plain_text,
    rich_blocks,
    section,
)

TABLE = TextTable(("name", ">bytes"), (("orders", "1,024"), (Cell("注文", "warn"), "7")))


def test_columns_line_up_also_below_wide_characters() -> None:
    assert plain_text([TABLE]) == "  name    bytes\n  orders  1,024\n  注文        7\n"


def test_plain_lines_are_never_wrapped_and_never_end_in_blanks() -> None:
    long = "x" * 500
    assert plain_text([pairs((long, "short"), ("b", Cell("")))]) == f"  {long}  short\n  b\n"


def test_a_section_without_content_is_not_there() -> None:
    assert section("Findings") == ()
    assert plain_text(section("Findings", Line("none", indent=2))) == "\nFindings\n  none\n"


def test_a_terminal_gets_the_same_words_and_no_markup_is_read_from_them() -> None:
    blocks = [Line("[bold]job[/bold]: warn", "warn"), Gap(), TABLE]
    console = Console(
        file=io.StringIO(), force_terminal=True, width=60, highlight=False, markup=False
    )
    with console.capture() as shown:
        for renderable in rich_blocks(blocks):
            console.print(renderable)
    plain = Console(file=io.StringIO(), width=60, no_color=True, force_terminal=False)
    with plain.capture() as bare:
        for renderable in rich_blocks(blocks):
            plain.print(renderable)
    assert "\x1b[" in shown.get()
    assert bare.get().split() == plain_text(blocks).split()


def test_a_long_table_is_shown_plainly_at_a_terminal_too() -> None:
    rows = tuple((str(number), "x") for number in range(2000))
    lines = [str(line) for line in rich_blocks([TextTable(("a", "b"), rows)])]
    assert lines == plain_text([TextTable(("a", "b"), rows)]).splitlines()


def test_a_line_break_in_a_cell_does_not_break_the_table() -> None:
    assert plain_text([TextTable(("a", "b"), (("x\ny", "z"),))]) == "  a    b\n  x y  z\n"


def test_what_would_move_the_cursor_is_shown_as_an_escape() -> None:
    hostile = "a\x1b[2Jb\x07\r\x9b1m\u202ec"
    blocks = [Line(hostile), TextTable(("", ""), (("file", hostile),))]
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=200,
        highlight=False,
        markup=False,
        no_color=True,
    )
    with console.capture() as shown:
        for renderable in rich_blocks(blocks):
            console.print(renderable)
    for text in (plain_text(blocks), shown.get()):
        assert text.count(r"a\x1b[2Jb\x07\r\x9b1m\u202ec") == 2
    assert plain_text([Line("two\nlines, é and 日本")]) == "two\\nlines, é and 日本\n"


def test_only_a_log_begins_lines_and_each_of_them_behind_a_bar() -> None:
    said = "the job died; its log ends:\nerror: all is well\n\x1b[2Jgone"
    shown = "the job died; its log ends:\n  | error: all is well\n  | \\x1b[2Jgone\n"
    assert plain_text([Line(said)]) == shown


class Screen(io.StringIO):
    """A terminal with colours, of 60 columns."""

    def isatty(self) -> bool:
        return True


COPIED = f"stateshift rollback '/a folder/{'x' * 60}/run' --yes --discard-progress --json"


@pytest.mark.parametrize(
    "block",
    [
        Line(f"hint: {COPIED}"),
        Line(f"if this is interrupted: {COPIED}", "dim", 4),
        pairs(("go on", COPIED), ("take back", COPIED)),
    ],
)
def test_a_command_is_not_broken_by_a_narrow_terminal(
    block: Line | TextTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line break in a command that is copied ends it there."""
    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    Terminal(environment={}).talk([block, Line("word " * 30)])
    assert COPIED in screen.getvalue()
    assert max(map(len, screen.getvalue().splitlines()[-3:])) <= 60  # all else is wrapped
