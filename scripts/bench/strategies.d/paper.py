"""What is known here of section 5.3 of Megaphone (PVLDB 12(9), 2019): what its text says of its
figures, which have no table (tests/rows.md, rows M-4 and M-21 to M-23).
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.models.sweeps import STRATEGIES

# M-21: by sweep and strategy, the slope of the longest wait over what is varied, both as
# logarithms.
SLOPES: Mapping[str, Mapping[str, float]] = {
    "bins": {str(s): 0.0 if str(s) == "all-at-once" else -1.0 for s in STRATEGIES},
    "keys": {str(s): 1.0 for s in STRATEGIES},
    "both": {str(s): 1.0 if str(s) == "all-at-once" else 0.0 for s in STRATEGIES},
}

# M-4: in durations of a step, without a gap and with one.
GAP_WAITS = (2, 1)

# M-22: records a second up to which the latency does not rise; how many times all-at-once waits
# longer than batched.
FLAT_UP_TO = 16e6
LOWER_BY = (10, 100)

# M-23: of one of four processes, at 16,000 M keys.
EXTRA_MEMORY = {
    "all-at-once": "about 30",
    "optimised": "no large variance",
    "fluid": "no large variance",
}
