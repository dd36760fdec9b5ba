"""A controller in a process of its own, to be killed: `live_change.py LOCATION K SECONDS TIMEOUT`
replaces the function of the chain `score` by one that gives rows K and takes SECONDS for each Arrow
batch. What nobody has decided on within TIMEOUT seconds is aborted.
"""

from __future__ import annotations

import sys

from stateshift.live.acts import Edit, Manner, change
from tests.acceptance.live_functions import giving

location, k, seconds, timeout = sys.argv[1:]
edit = Edit("score", "replace", giving(int(k), float(seconds)))
manner = Manner(scheduler="epoch", timeout_seconds=float(timeout), wait_seconds=60.0)
changed = change(location, [edit], manner)
assert changed.carried is not None
print(changed.carried.state)
