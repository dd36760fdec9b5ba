"""The experiments of Fries on the simulator, and the speed of finding components: tables,
curves, a picture, a page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what benches share

from figures import figures, picture
from measuring import measured
from pages import left_alone, missing
from tables import page

RESULTS = Path(__file__).resolve().parents[1] / "results" / "reconfigure.md"


def main(seed: int) -> None:
    lacking = missing("matplotlib", "networkx")
    found = measured(seed)
    drawn = figures(found)
    told = page(found, drawn, seed, lacking)
    print(told)
    if lacking:
        left_alone(RESULTS, lacking)
        return
    picture(drawn, RESULTS.with_suffix(".png"))
    RESULTS.write_text(told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of all that is left to chance (1); the same gives the same delays",
    )
    main(parser.parse_args().seed)
