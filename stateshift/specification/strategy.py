"""Strategies by which jobs move in steps, in one spelling of each name. `dataflow.move_steps` says
what each does. Pure.
"""

from __future__ import annotations

import re

from stateshift.specification.key import fold

EXPECTED = "all-at-once, fluid, batched(k) with k moves at a time, or optimised"
_NAMES = {
    "allatonce": "all-at-once",
    "fluid": "fluid",
    "optimised": "optimised",
    "optimized": "optimised",
}
_BATCHED = re.compile(r"\s*batched\s*\(\s*0*([1-9][0-9]{0,8})\s*\)\s*", re.IGNORECASE)


def normal_strategy(text: str) -> str | None:
    """Return the one spelling of a strategy; None for what names none."""
    match = _BATCHED.fullmatch(text)
    return f"batched({match[1]})" if match is not None else _NAMES.get(fold(text.strip()))
