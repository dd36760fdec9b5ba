"""Write the input of `scripts/golden/old`: files of twelve events each. old_inputs.py FOLDER
COUNT [FIRST]
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

WORDS = ["alpha", "beta", "gamma", "délta", "", "epsilon zeta"]
BEGIN = datetime.datetime(2026, 1, 1)


def events_of(batch: int) -> list[dict[str, Any]]:
    """The events of one file. Every fifth has no amount."""
    events = []
    for number in range(batch * 12, batch * 12 + 12):
        at = BEGIN + datetime.timedelta(seconds=number * 7)
        event = {"id": number, "at": f"{at.isoformat()}.000Z", "word": WORDS[number * number % 6]}
        if number % 5:
            event["amount"] = number / 4
        events.append(event)
    return events


def write(folder: Path, batch: int) -> None:
    path = folder / f"f{batch}.json"
    path.write_text("".join(json.dumps(event) + "\n" for event in events_of(batch)))
    os.utime(path, (1_767_225_600 + batch,) * 2)


if __name__ == "__main__":
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(first, first + count):
        write(folder, batch)
