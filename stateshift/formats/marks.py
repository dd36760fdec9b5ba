"""What we leave beside an image: the folder `_stateshift`, and the fence. Engines ignore names they do not know.

    _stateshift/operators.json   name -> directory of each operator, so that hashes can be read back
    _stateshift/stop             the marker a job that imports `stateshift.job` watches for between two batches
    _stateshift/idle             written by such a job once it is restored and has nothing to read
    offsets/N+1, commits/N+1     the fence: taken so that no zombie of the old job can commit (text: `fence_text`)

Pure: names and bytes, no storage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from stateshift.errors import FormatError

FOLDER = "_stateshift"
INDEX = f"{FOLDER}/operators.json"
STOP = f"{FOLDER}/stop"
IDLE = f"{FOLDER}/idle"
TEMPORARY = ".stateshift-"  # how our temporary files begin; they end in .tmp
LOCK_SUFFIX = ".stateshift-lock"

_FENCE = "stateshift fence v1\n"


def encode_index(directories: Mapping[str, str]) -> bytes:
    """The name index, one operator a line."""
    text = json.dumps(
        {"version": 1, "operators": dict(sorted(directories.items()))}, indent=1, ensure_ascii=False
    )
    return (text + "\n").encode()


def decode_index(content: bytes, path: str = INDEX) -> dict[str, str]:
    """Name -> directory."""
    try:
        plain = json.loads(content)
        operators = plain["operators"]
        if plain["version"] == 1 and all(isinstance(v, str) for v in operators.values()):
            return dict(operators)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"not an index of operators: {error}", path, 0) from error
    raise FormatError("not an index of operators of version 1", path, 0)


def fence_text(owner: str) -> str:
    """The fence's content: no engine takes it for a log entry, and a person reads whose it is."""
    return f"{_FENCE}{owner}\nThe state of this job was moved. To undo: stateshift rollback\n"


def fence_owner(content: bytes) -> str | None:
    """Who put up the fence, or None if this is not one."""
    text = content.decode("utf-8", "replace")
    return text[len(_FENCE) :].split("\n", 1)[0] if text.startswith(_FENCE) else None
