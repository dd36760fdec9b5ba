"""What it costs that the state of a Spark job moves in bins while the job runs.

    python live.py [--quick] [--parts NAMES] [--again] [--page]

The parts: strategies, throughput, bins, columns, load, memory, executors. What was measured is kept beside the page, and not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from page import FIGURES, as_page, written
from pages import figures_in
from parts import PARTS, QUICK, WHOLE, case_of


class Kept:
    """The figures that are there, and those of this run."""

    def __init__(self, is_quick: bool, again: bool) -> None:
        self.is_quick = is_quick
        self.every = [] if is_quick else figures_in(FIGURES)
        self.old = set() if again else {case_of(one) for one in self.every}

    def is_missing(self, **case: Any) -> bool:
        found = {key: value for key, value in case.items() if value is not None}
        return not any(_is_of(one, found) for one in self.every if case_of(one) in self.old)

    def add(self, figures: dict[str, Any]) -> None:
        """Keep a measurement in the place of what was measured of the same case."""
        before_rounds = {**figures, "round": None}
        replaced = (case_of(figures), case_of(before_rounds))
        others = [one for one in self.every if case_of(one) not in replaced]
        self.every = [*others, figures]
        if not self.is_quick:
            FIGURES.write_text("".join(json.dumps(one) + "\n" for one in self.every))


def _is_of(figures: dict[str, Any], case: dict[str, Any]) -> bool:
    return all(figures.get(key) == value for key, value in case.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--parts", default="", help="some of: " + ",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a small version, and nothing written")
    parser.add_argument("--again", action="store_true", help="measure what is there, too")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    options = parser.parse_args()
    wanted = options.parts.split(",") if options.parts else list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        parser.error(f"no part: {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    figures = Kept(options.quick, options.again)
    for name in () if options.page else wanted:
        for measured in PARTS[name](QUICK if options.quick else WHOLE, figures.is_missing):
            figures.add({**measured, "at": time.strftime("%Y-%m-%d %H:%M")})
            print(json.dumps(_brief(measured)), file=sys.stderr, flush=True)
    if options.quick:
        print("\n".join(as_page(figures.every)))
    else:
        written(figures.every)


def _brief(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures without what is drawn of them."""
    long = ("timeline", "ccdf", "histogram")
    return {
        key: _brief(value) if isinstance(value, dict) else value
        for key, value in figures.items()
        if key not in long
    }


if __name__ == "__main__":
    main()
