"""One bin in a batch: the stages that its rows go through, up to a frontier.

    history of the bin    west, from 45 on east, from 90 on west
    west's frontier       from 40 to 95
    stages                apply before 45 · give at 45 to east · leave out before 90 · take at 90 ·
                          apply before 95

Until a bin that is to be taken has come, all its rows from there on are held. A bin that goes on
before it has come waits here as well: it is given once it was taken. Pure, and of one bin alone.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from stateshift.live.bins.times import Moment, cut
from stateshift.live.protocol.configuration import History, Time

Place = Literal["here", "away", "awaited"]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a bin has come: all before `at` is done. `since` is the awaited move's time."""

    at: Moment
    place: Place
    since: Time | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """Rows before a moment, and what was asked for before it, are folded."""

    until: Moment


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Rows before a moment belong to others."""

    until: Moment


@dataclass(frozen=True, slots=True)
class Give:
    """The bin goes to another worker, as it is after everything before the time."""

    time: Time
    worker: int


@dataclass(frozen=True, slots=True)
class Take:
    """The bin comes, as it was given at the time."""

    time: Time


Stage = Apply | LeaveOut | Give | Take


def stages(
    history: History, me: int, position: Position, frontier: Moment, arrived: Container[Time]
) -> tuple[tuple[Stage, ...], Position]:
    """Return a bin's stages up to a frontier, and its position then. `arrived`: moves to here."""
    found: list[Stage] = []
    place, since, at = position.place, position.since, position.at
    if place == "awaited":
        assert since is not None, "what is awaited has a time"
        if since not in arrived:
            return (), position
        found.append(Take(since))
        place, since = "here", None
    for time, worker in history:
        if not at < cut(time) <= frontier:
            continue
        at, is_mine = cut(time), worker == me
        found.append(Apply(at) if place == "here" else LeaveOut(at))
        if place == "here" and not is_mine:
            found.append(Give(time, worker))
            place = "away"
        elif place == "away" and is_mine:
            if time not in arrived:
                return tuple(found), Position(at, "awaited", time)
            found.append(Take(time))
            place = "here"
    found.append(Apply(frontier) if place == "here" else LeaveOut(frontier))
    return tuple(found), Position(frontier, place)
