"""The lines of code that the page of NEXMark's queries tells are those of the sources."""

from __future__ import annotations

from tests.support.nexmark import lines_of_code, nexmark_page

SOURCE = '''
LIMIT = 3  # a constant


@operator(
    key="a",
)
def query(a):
    """Return what it says."""
    # a comment

    return helped(a, LIMIT)


def helped(a, limit):
    """Help."""
    return a * Held(limit).value


class Held:
    """A value.

    At length.
    """

    value = 1


def another(a):
    return query(a)
'''


def test_lines_are_those_of_a_query_and_of_all_that_it_needs() -> None:
    assert lines_of_code.lines_of(SOURCE, ("query",)) == 5 + 2 + 2
    assert lines_of_code.lines_of(SOURCE, ("another",)) == 2 + 5 + 2 + 2


def test_what_several_roots_share_counts_once() -> None:
    assert lines_of_code.lines_of(SOURCE, ("query", "another")) == 2 + 5 + 2 + 2


def test_the_page_has_the_lines_of_the_sources() -> None:
    told = nexmark_page.RESULTS.read_text()
    assert "\n".join(nexmark_page.lines_section()) in told
