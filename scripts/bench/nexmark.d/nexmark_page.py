"""The page of NEXMark's queries, from their sources: how long they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lines_of_code import PAPER_MEGAPHONE, PAPER_NATIVE, QUERIES, live_lines, native_lines
from pages import wrapped

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "scripts" / "bench" / "results" / "nexmark.md"
COMMAND = "./scripts/bench/nexmark"
PAPER = "Megaphone (PVLDB 12(9), 2019)"


def written() -> None:
    """Write the page."""
    RESULTS.write_text("\n".join(as_page()).rstrip() + "\n")
    print(RESULTS.read_text())


def as_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# NEXMark's queries as live operators"
    yield ""
    yield from wrapped(
        f"`{COMMAND}` writes this page. The queries are in `scripts/bench/nexmark.d`: as live "
        "operators (`live_queries.py`), as a user of Spark writes them (`native.py`), and as "
        "plainly as they can be said (`reference.py`). `tests/nexmark` holds the rows of both "
        "against the plain ones, on a real Spark."
    )
    yield ""
    yield from lines_section()


# ------------------------------------------------------------------------------------ lines of code


def lines_section() -> Iterator[str]:
    """Yield how long the queries are, ours and the paper's."""
    yield "## Lines of code (M-18)"
    yield ""
    yield from wrapped(
        "A query with all functions and classes that it needs, without blank lines, comments, "
        "docstrings, imports and constants. What queries share counts for each of them. The "
        f"paper's are Table 1 of {PAPER}: Rust, on timely dataflow."
    )
    yield ""
    yield f"| | {' | '.join(query.upper() for query in QUERIES)} |"
    yield f"|---|{'---|' * len(QUERIES)}"
    native, ours = native_lines(), live_lines()
    yield _row("Spark, native", native)
    yield _row("live operators", ours)
    yield _factors("native ÷ live", native, ours)
    yield _row("the paper's, native", PAPER_NATIVE)
    yield _row("the paper's, Megaphone", PAPER_MEGAPHONE)
    yield _factors("native ÷ Megaphone", PAPER_NATIVE, PAPER_MEGAPHONE)
    yield ""
    yield from wrapped(
        "Spark's own joins, windows and aggregates say most queries in a few lines: where SQL does, "
        "it is shorter. Q4 and Q6 are no SQL of a stream: natively they are two "
        "`transformWithState` each, and the live operators take a little more than half of that. The paper's native "
        "queries have no such operators below them, and are optimised by hand."
    )


def _row(name: str, lines: Mapping[str, int]) -> str:
    return f"| {name} | {' | '.join(str(lines[query]) for query in QUERIES)} |"


def _factors(name: str, native: Mapping[str, int], live: Mapping[str, int]) -> str:
    factors = [f"{native[query] / live[query]:.1f}" for query in QUERIES]
    return f"| {name} | {' | '.join(factors)} |"


if __name__ == "__main__":
    written()
