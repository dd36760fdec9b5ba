"""Our files beside an image: the folder `_stateshift`, and the fence. Engines ignore names they do
not know.

    _stateshift/operators.json  name -> directory of each operator, so that hashes can be read back
    _stateshift/stop            the marker a job that imports `stateshift.job` watches for between
                                two batches
    _stateshift/stopping        such a job's answer, for its present marker: it is alive, and
                                stopping
    _stateshift/idle            written by such a job once it is restored and has nothing to read
    _stateshift/progress        written by such a job every few seconds: its last batches
                                (`formats.spark.progress`)
    _stateshift/waiting         written by such a job that was started early, and waits for its
                                image
    _stateshift/released        our answer, once the image is there
    _stateshift/fence/0, /1 …   the fence, before it is put up, where a rename is sooner than a new
                                file
    _stateshift/staged/PATH     what will make the image visible as PATH, where that was copied
                                beforehand
    _stateshift/aside-RUN/PATH  what was at PATH before that run brought an image here
    offsets/N+1, commits/N+1    the fence: taken so that no zombie of the old job can commit (text:
                                `fence_text`)

Pure: names and bytes, no storage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain

from stateshift.errors import FormatError

FOLDER = "_stateshift"
INDEX = f"{FOLDER}/operators.json"
STOP = f"{FOLDER}/stop"
STOPPING = f"{FOLDER}/stopping"
IDLE = f"{FOLDER}/idle"
PROGRESS = f"{FOLDER}/progress"
WAITING = f"{FOLDER}/waiting"
RELEASED = f"{FOLDER}/released"
STAGED = f"{FOLDER}/staged"
FENCE = f"{FOLDER}/fence"
ASIDE = f"{FOLDER}/aside-"
WAIT = "STATESHIFT_WAIT"  # what tells a job that it was started early
TEMPORARY = ".stateshift-"  # how our temporary files begin; they end in .tmp
LOCK_SUFFIX = ".stateshift-lock"

# The markers between us and a running job.
_OF_A_JOB = (STOP, STOPPING, IDLE, PROGRESS, WAITING, RELEASED)

_FENCE = "stateshift fence v1"
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def is_of_a_job(path: str) -> bool:
    """Whether a file is a marker between us and a running job, of its image or a query."""
    return any(f"/{path}".endswith(f"/{mark}") for mark in _OF_A_JOB)


def encode_index(directories: Mapping[str, str]) -> bytes:
    """Return the name index, one operator a line."""
    index = {"version": 1, "operators": dict(sorted(directories.items()))}
    return (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode()


def decode_index(content: bytes, path: str = INDEX) -> dict[str, str]:
    """Return name -> directory."""
    try:
        plain = json.loads(content)
        version, operators = plain["version"], dict(plain["operators"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"not an index of operators: {error}", path, 0) from error
    texts = [text for text in chain(operators, operators.values()) if isinstance(text, str)]
    # No file could be called by half a surrogate pair.
    if version != 1 or len(texts) < 2 * len(operators) or any(map(_HALF_PAIR.search, texts)):
        raise FormatError("not an index of operators of version 1", path, 0)
    return operators


def encode_stop(job: str, tag: str | None, until: float) -> bytes:
    """Return the marker that asks a job to stop until a time (seconds since 1970), not for ever."""
    plain = {"version": 1, "job": job, "tag": tag, "until": until}
    return (json.dumps(plain, sort_keys=True, ensure_ascii=False) + "\n").encode()


def asks_to_stop(content: bytes, job: str | None, tag: str | None, now: float) -> bool:
    """Whether the marker means this job and tag. An empty one (`touch`) means every job."""
    if not content.strip():
        return True
    try:
        plain = json.loads(content)
        wanted, marked, until = plain["job"], plain["tag"], float(plain["until"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    means_job = job is None or job == wanted
    means_submission = marked is None or marked == tag
    return now <= until and means_job and means_submission


def is_stop_of(content: bytes | None, job: str) -> bool:
    """Whether a marker, or its answer, is ours for this job: a person's names nobody."""
    try:
        return bool(json.loads(content or b"")["job"] == job)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def encode_idle(tag: str, epoch: int | None) -> bytes:
    """Return the marker of a submission that waits for input, and its last committed epoch."""
    plain = {"tag": tag, "epoch": epoch}
    return (json.dumps(plain, sort_keys=True, ensure_ascii=False) + "\n").encode()


def encode_tag(tag: str) -> bytes:
    """Return the marker of a submission that waits, or may go on."""
    return (json.dumps({"tag": tag}) + "\n").encode()


def is_meant(content: bytes | None, tag: str) -> bool:
    """Whether such a file speaks of this submission."""
    return content is not None and content.strip() == encode_tag(tag).strip()


def fence_text(owner: str) -> str:
    """Return the fence's content: no engine takes it for a log entry; a person can read it. Spark
    fails on the first line, and its exception shows that line and no other.
    """
    way_out = "start it where it is now, or undo that: stateshift rollback WORKDIR"
    return f"{_FENCE}: run {owner} has moved this job away; {way_out}\n{owner}\n"


def fence_sizes(owner: str) -> tuple[int, ...]:
    """Return the sizes that the files of a fence may have: of ours, or as it once was."""
    before = f"{_FENCE}\n{owner}\nThe state of this job was moved. To undo: stateshift rollback\n"
    return len(fence_text(owner).encode()), len(before.encode())


def fence_owner(content: bytes) -> str | None:
    """Return the owner of a fence, or None if this is not one. Its first line was once shorter."""
    first, _, rest = content.decode("utf-8", "replace").partition("\n")
    if not rest or (first != _FENCE and not first.startswith(f"{_FENCE}: ")):
        return None
    return rest.split("\n", 1)[0]


def is_fence_of(content: bytes | None, owner: str) -> bool:
    """Whether a file is of the fence of this run."""
    return content is not None and fence_owner(content) == owner
