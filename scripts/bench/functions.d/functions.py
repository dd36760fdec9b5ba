"""How long it takes to replace, introduce and remove functions of a running Spark job.

    python functions.py [--quick] [--parts surge,calm,filter,restart,overhead,pair] [--page]

Every part that is measured takes the place of what the page had of it; the others stay.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from page import FIGURES, written
from pages import figures_in
from parts import PARTS, QUICK, WHOLE


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--parts", default="", help="some of: " + ",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a small version, and no page")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    options = parser.parse_args()
    wanted = options.parts.split(",") if options.parts else list(PARTS)
    if options.quick and not options.parts:
        wanted = ["surge", "filter"]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        parser.error(f"no part: {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    for name in () if options.page else wanted:
        measured = []
        for figures in PARTS[name](QUICK if options.quick else WHOLE):
            measured.append({**figures, "at": time.strftime("%Y-%m-%d %H:%M")})
            told = {key: value for key, value in figures.items() if not isinstance(value, list)}
            print(json.dumps(told), file=sys.stderr, flush=True)
        if measured and not options.quick:
            others = [one for one in figures_in(FIGURES) if one["part"] != name]
            FIGURES.write_text("".join(json.dumps(one) + "\n" for one in (*others, *measured)))
    if not options.quick:
        written(figures_in(FIGURES))


if __name__ == "__main__":
    main()
