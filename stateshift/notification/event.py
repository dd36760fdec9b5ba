"""A notification as a value, and as the JSON that commands and webhooks get. Pure.

    {"text": "stateshift: orders finished, down for 3.2 s", "event": "finished", "run": …, …}

`text` is for Slack and its likes; everything else is for programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

Event = Literal["ready", "failed", "finished", "rpo-passed", "rpo-kept"]


class NotificationDocument(TypedDict):
    """What a receiver of `on` gets."""

    text: Annotated[str, "one line for people"]
    event: Annotated[Event, "what has happened"]
    run: Annotated[str, "the name of the run"]
    state: Annotated[str, "where the run stands, in the words of `stateshift status`"]
    jobs: Annotated[list[str], "the jobs that it is about"]
    workdir: Annotated[str, "where the run's journal is"]
    host: Annotated[str, "the machine that runs stateshift"]
    at: Annotated[float, "when it happened, in seconds since 1970"]
    downtime_seconds: Annotated[float | None, "finished, failed: the longest downtime of its jobs"]
    error: Annotated[str | None, "failed: the class of the error"]
    message: Annotated[str | None, "failed: the fact, in one line"]
    hint: Annotated[str | None, "failed: the way out"]
    exit_code: Annotated[int | None, "failed: the exit code of the process"]


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The failure of a run."""

    error: str
    message: str
    hint: str | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of one run. `detail` stands in the line for people beside the event."""

    event: Event
    run: str
    state: str
    jobs: tuple[str, ...]
    workdir: str
    host: str
    at: float
    detail: str = ""
    downtime_seconds: float | None = None
    failure: RunFailure | None = None

    @property
    def text(self) -> str:
        jobs = ", ".join(self.jobs) or self.run
        detail = f"{self.detail}; " if self.detail else ""
        return f"stateshift: {jobs} {self.event}: {detail}run {self.run} on {self.host}"


def document_of(notification: Notification) -> NotificationDocument:
    """Return the document of a notification."""
    failure = notification.failure
    return {
        "text": notification.text,
        "event": notification.event,
        "run": notification.run,
        "state": notification.state,
        "jobs": list(notification.jobs),
        "workdir": notification.workdir,
        "host": notification.host,
        "at": notification.at,
        "downtime_seconds": notification.downtime_seconds,
        "error": None if failure is None else failure.error,
        "message": None if failure is None else failure.message,
        "hint": None if failure is None else failure.hint,
        "exit_code": None if failure is None else failure.exit_code,
    }


def slack_text(text: str) -> str:
    """Return a text in which Slack sees no markup: `&`, `<` and `>` have a meaning there."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
