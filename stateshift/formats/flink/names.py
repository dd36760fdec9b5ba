"""What Flink calls its files, for those who need nothing else of its formats."""

from __future__ import annotations

from typing import Final

METADATA: Final = "_metadata"
