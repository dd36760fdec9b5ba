"""How a run is watched by a program: one function that is called with what was done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Event = Literal["phase", "step", "done", "message"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that happened.

    phase    a phase of `job` begins: its `name`, and the files and bytes that it takes
    step     a step begins: its `name`, and in `text` what it does
    done     so many files and bytes more are done
    message  a line for a person, in `text`
    """

    event: Event
    job: str = ""
    name: str = ""
    text: str = ""
    files: int = 0
    bytes: int = 0


Watch = Callable[[Progress], None]


class CallbackMeter:
    """Calls a function with everything that a run tells, from whichever thread tells it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        """Tell that a phase begins."""
        self._watch(Progress("phase", job=job, name=name, files=files, bytes=bytes))

    def step(self, name: str, description: str) -> None:
        """Tell that a step begins."""
        self._watch(Progress("step", name=name, text=description))

    def done(self, files: int, bytes: int) -> None:
        """Tell that files are done."""
        self._watch(Progress("done", files=files, bytes=bytes))

    def say(self, line: str) -> None:
        """Tell a line."""
        self._watch(Progress("message", text=line))
