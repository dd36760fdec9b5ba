"""What commands still get wrong about damaged images: lists that are worked off, not grown.

A class is a result, an engine and a kind of file; beside it stands one mutation that shows it. A
class that is not here must not come up (test_damage.py); one that no longer comes up is taken out
(the same, in a full run).
"""

from __future__ import annotations

from collections.abc import Mapping

Class = tuple[str, str, str]

# Of `verify --deep`.
KNOWN: Mapping[Class, str] = {}
