"""The files that Flink writes: `_metadata` and what it names."""

from __future__ import annotations

from typing import Final

METADATA: Final = "_metadata"
