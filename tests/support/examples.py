"""The specs in configs/examples, as a reader takes one: with other places put where the made-up
ones stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "examples"


def example(name: str, folder: Path, places: Mapping[str, str] | None = None) -> Path:
    """The example in a folder of the test's own; each of the words that are replaced is there."""
    text = (FOLDER / name).read_text("utf-8")
    for made_up, real in (places or {}).items():
        assert made_up in text, f"{name} has no {made_up}"
        text = text.replace(made_up, real)
    path = folder / name
    path.write_text(json.dumps(json.loads(text), indent=2))
    return path
