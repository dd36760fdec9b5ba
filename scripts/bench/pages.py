"""A bench's page and its picture: written down together, and only where nothing that belongs to
them is missing; and how figures are told on one.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
INSTALL = f"{sys.executable} -m pip install -e '{ROOT}[bench]'"


def missing(*modules: str) -> tuple[str, ...]:
    """Of what the extra [bench] brings."""
    return tuple(name for name in modules if importlib.util.find_spec(name) is None)


def drawing() -> Any:
    """What pictures are drawn with, where it is installed, and where nobody looks on."""
    if missing("matplotlib"):
        print(f"no picture without matplotlib: {INSTALL}", file=sys.stderr)
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def left_alone(page: Path, lacking: Sequence[str]) -> None:
    """Say that the page in the checkout stays as it was, and how to get what is missing."""
    place = page.relative_to(ROOT)
    print(
        f"not installed: {', '.join(lacking)}; {place} and {place.stem}.png are left as they were",
        file=sys.stderr,
    )
    print(f"hint: {INSTALL}", file=sys.stderr)


def figures_in(file: Path) -> list[dict[str, Any]]:
    """What was measured last: a line of JSON for each; none where there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def put_down(page: Path, lines: Iterable[str]) -> None:
    """Write a page, and show it."""
    text = "\n".join(lines).rstrip() + "\n"
    page.write_text(text)
    print(text)


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def told(values: Sequence[float]) -> str:
    """Their median, and the least and the most of them."""
    return f"{median(values):.2f} ({min(values):.2f} / {max(values):.2f})"


def reached(is_so: bool) -> str:
    return "reached" if is_so else "NOT reached"
