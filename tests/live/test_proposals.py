"""A change is carried to all workers there are, whichever partitions they have."""

from __future__ import annotations

import time
from pathlib import Path

from stateshift.live import proposals
from stateshift.live.folder import Folder, Seal, WorkerWord
from stateshift.live.proposals import ChangeRequest, Patience, read_group
from stateshift.live.protocol.chains import Declaration, NewChain
from stateshift.storage.opening import open_patiently


def word(partition: int, word: str) -> WorkerWord:
    return WorkerWord("score", "q", partition, word, time.time(), 0, "here", 1)


def test_workers_whose_partitions_do_not_begin_at_0_complete_a_change(tmp_path: Path) -> None:
    folder = Folder(open_patiently(str(tmp_path)))
    folder.ensure()
    folder.declare(Declaration("score", (), (), "", "3.11", "26"))
    folder.seal("q", 0, Seal(0, time.time()))
    for partition in (4, 5):
        folder.register(word(partition, "registered"))
    now = read_group(folder)
    change = proposals.propose(
        folder, now, ChangeRequest("replace", {"score": NewChain(())}, "epoch")
    )
    for partition in (4, 5):
        folder.say(change.number, word(partition, "acknowledged"))
        folder.say(change.number, word(partition, "running"))
    carried = proposals.follow(folder, now, change, Patience(0.0))
    assert (carried.state, carried.workers, carried.running) == ("finished", 2, 2)
