"""The small files beside an image, as a job writes them on a local disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own: in that of the tests nothing is flushed.
WRITE = """
import os
import sys
from stateshift.job import files

root = sys.argv[1]
names = {}

def named(status):
    for path in (root, *(os.path.join(at, name) for at, *found in os.walk(root) for name in sum(found, []))):
        if os.stat(path).st_ino == status.st_ino:
            return os.path.relpath(path, root)

def fsync(descriptor, real=os.fsync):
    name = named(os.fstat(descriptor))
    print("sync", "temporary" if name.endswith(".tmp") else name)
    real(descriptor)

def replace(source, target, real=os.replace):
    print("rename to", os.path.relpath(target, root))
    real(source, target)

os.fsync, os.replace = fsync, replace
for content in (b"{}", b"{1}"):
    files.write(f"{root}/image", "_stateshift/operators.json", content)
"""
FILE = ["sync temporary", "rename to image/_stateshift/operators.json", "sync image/_stateshift"]


def test_what_is_written_survives_a_crash_of_the_machine(tmp_path: Path) -> None:
    words = (sys.executable, "-c", WRITE, str(tmp_path))
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["sync .", "sync image", *FILE, *FILE]
    assert (tmp_path / "image/_stateshift/operators.json").read_bytes() == b"{1}"
