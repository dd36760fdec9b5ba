"""The work of earlier runs, by the files that they left: where jobs are, what is not finished, and
what a decision has to remember.

    begun and no more     nothing was done: the move is as if it had not been
    finished              its jobs are where it brought them
    taken back            they are where they were; it is not repeated for a while, or until its
                          spec is another (`refused`)
    anything else         it is not finished, and comes before all others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateshift import migration
from stateshift.advise.rebalance.memory import Memory
from stateshift.api.rebalancing.folder import Folder, MoveRecord
from stateshift.api.rebalancing.refused import refused_numbers


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a job: its image is at `image`, by the move of that number; both are None for
    where the spec has it. `parallelism` is what we have scaled it to.
    """

    cluster: str
    image: str | None = None
    number: int | None = None
    at: float | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """The moves of earlier runs, by how far they have come."""

    finished: tuple[MoveRecord, ...] = ()
    taken_back: tuple[MoveRecord, ...] = ()
    unfinished: tuple[MoveRecord, ...] = ()

    @property
    def places(self) -> dict[str, Place]:
        """Return the place of each job that was moved."""
        places: dict[str, Place] = {}
        for move in self.finished:
            for job in move.jobs:
                before = places.get(job)
                image = move.images.get(job) or (before.image if before else None)
                scaled = move.parallelism.get(job) or (before.parallelism if before else None)
                places[job] = Place(move.target, image, move.number, move.at, scaled)
        return places

    @property
    def last(self) -> int:
        """Return the number of the last move that is over."""
        return max((move.number for move in (*self.finished, *self.taken_back)), default=0)


def past_of(folder: Folder) -> Past:
    """Return the moves of earlier runs.

    Raises:
        JournalError: a move, or its journal, cannot be read.
    """
    by_state: dict[str, list[MoveRecord]] = {"finished": [], "taken back": [], "unfinished": []}
    for move in folder.moves():
        word = _word(folder, move)
        if word in by_state:
            by_state[word].append(move)
    return Past(
        tuple(by_state["finished"]),
        tuple(by_state["taken back"]),
        tuple(by_state["unfinished"]),
    )


def _word(folder: Folder, move: MoveRecord) -> str:
    workdir = folder.workdir(move.number, move.jobs)
    state = migration.progress_of(workdir).state if workdir.exists else "new"
    match state:
        case "new":
            return "nothing"
        case "finished":
            return "finished"
        case "rolled-back":
            return "taken back"
    return "unfinished"


def memory_of(folder: Folder, past: Past) -> Memory:
    """Return the memory for the next decision. Clusters are counted anew behind a move; a move that
    was taken back has brought nothing. One that has failed is not judged here (`refused`).
    """
    kept = folder.memory()
    numbers = refused_numbers(folder)
    given_up = [move for move in past.taken_back if move.number not in numbers]
    acted = any(move.decision == kept.decision for move in past.finished)
    return Memory(
        counts={} if acted else kept.counts,
        counted={} if acted else kept.counted,
        moves=tuple(move.moved for move in _unjudged(past.finished, kept.judged)),
        failed=(
            *kept.failed,
            *(move.moved for move in _unjudged(given_up, kept.judged)),
        ),
    )


def _unjudged(moves: Sequence[MoveRecord], judged: int) -> list[MoveRecord]:
    return [move for move in moves if move.number > judged]
