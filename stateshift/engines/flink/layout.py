"""Names in Flink's folders.

savepoint-<job>-<random>/_metadata, <uuid> ...  a savepoint
<job>/chk-<n>/_metadata, <uuid> ...             a checkpoint; its files may lie in the next two as
                                                well
<job>/shared/<uuid>   <job>/taskowned/<uuid>
"""

from __future__ import annotations

import re
from typing import Final

from stateshift.formats.flink import METADATA as NAME
from stateshift.formats.marks import FOLDER

ENGINE: Final = "flink"
METADATA: Final = NAME
# The metadata of a target, before it is made visible under its own name. Everything that was
# compared can be compared again.
STAGED: Final = f"{FOLDER}/{METADATA}"

CHECKPOINT: Final = re.compile(r"chk-(\d+)")
# The folders of a job's files beside its checkpoints: what a place is recognised by after the job's
# folder was moved.
JOB_FOLDERS: Final = ("shared", "taskowned", "dstl")


def under(folder: str, path: str) -> str:
    """Return a path inside a folder; the folder "" is the root, and adds nothing."""
    return f"{folder}/{path}" if folder else path


def folder_of(path: str) -> str:
    """Return the folder that a path lies in, "" for a file at the root."""
    return path.rpartition("/")[0]
