"""NEXMark's queries as live operators: how long they are, and what moving them costs.

    python nexmark.py [--move] [--quick]

Without --move nothing is run: the page is written anew from the sources, and from what was measured
last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from nexmark_page import FIGURES, written
from pages import figures_in


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--move", action="store_true", help="move Q4 and Q8 while they run")
    parser.add_argument("--quick", action="store_true", help="a small version, and no page")
    options = parser.parse_args()
    found = measured(options.quick) if options.move else []
    if options.quick:
        return
    if found:
        FIGURES.write_text("".join(json.dumps(each) + "\n" for each in found))
    written(figures_in(FIGURES))


def measured(is_quick: bool) -> list[dict[str, object]]:
    """Move all queries with each strategy."""
    import moving

    found = []
    for load in moving.QUICK if is_quick else moving.WHOLE:
        for figures in moving.measured(load):
            found.append({**figures, "day": time.strftime("%Y-%m-%d")})
            shown = {key: value for key, value in figures.items() if key != "timeline"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
