"""Functions with a state: shipped to a running job, and kept behind a batch."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from stateshift import live
from stateshift.live import code, state
from stateshift.live.folder import Folder
from stateshift.testing.memory_storage import MemoryDisk

UNPACKED = """
import sys
from stateshift.live.code import unpack
from stateshift.live.state import Stateful
function = unpack(sys.stdin.buffer.read(), sys.argv[1])
print(isinstance(function, Stateful), function.slot, function([4], [1, 2]))
"""


@live.stateful("last", initial=[])
def keep(batch: list[int], state: list[int]) -> tuple[list[int], list[int]]:
    return batch, state + batch


def test_a_stateful_function_is_one_in_the_process_that_it_is_shipped_to() -> None:
    package = code.package(keep)
    command = [sys.executable, "-c", UNPACKED, package.digest]
    ran = subprocess.run(command, input=package.content, capture_output=True, check=False)
    assert ran.stdout.decode().strip() == "True last ([4], [1, 2, 4])", ran.stderr.decode()


def test_a_stateful_function_has_the_name_of_what_was_decorated() -> None:
    assert code.name_of(keep).endswith("test_stateful:keep")


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_behind_a_batch_leaves_its_state(seed: int) -> None:
    disk = MemoryDisk()
    folder = Folder(disk.open("memory://group"))
    for batch in range(6):
        state.store(folder, "q", "rules", batch, state.SlotStates(0, {"last": [batch]}, 0))
    disk.crash(random.Random(seed))
    after = Folder(disk.open("memory://group"))
    assert state.load(after, "q", "rules", 6) == state.SlotStates(0, {"last": [5]}, 0)
