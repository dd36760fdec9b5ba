"""Two images compared by their entries: files, shards and what else is an engine's own are
forgotten. Reads only.

diff(A, B) -> Differences  per operator and store: added (only B has the key), removed (only A),
                           changed
"""

from __future__ import annotations

import os

from stateshift.engines.registry import shown_by
from stateshift.engines.views import Differences, Opening, Readers
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently


def diff(
    one: str,
    other: str,
    opening: Opening = open_patiently,
    show: int = 0,
    fleet: Readers | None = None,
) -> Differences:
    """Compare the image at `one` (A) with that at `other` (B); `show` of the differences of each
    store are decoded. A `fleet` reads them, where there is one.
    """
    engine = shown_by(*(locations.normal(at, os.getcwd()) for at in (one, other)), opening=opening)
    return engine.diff(one, other, opening, show, fleet)
