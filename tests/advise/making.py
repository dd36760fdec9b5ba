"""Samples and loads as tests need them: one vertex unless more are said."""

from __future__ import annotations

from typing import Any

from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.samples import Input, JobSample, SubtaskSample, VertexSample

HOUR = 3600.0


def load(parallelism: int, input_rate: float, busy: float, **more: Any) -> VertexLoad:
    fields: dict[str, Any] = {
        "id": "v",
        "name": "orders",
        "parallelism": parallelism,
        "parallelism_max": 128,
        "inputs": (),
        "input_rate": input_rate,
        "output_rate": input_rate,
        "busy": busy,
    }
    return VertexLoad(**{**fields, **more})


def keyed(of: str, strategy: str = "HASH") -> tuple[Input, ...]:
    return (Input(of, strategy),)


def subtask(seconds: float, rate: float, busy: float, backpressured: float = 0.0) -> SubtaskSample:
    """What a subtask counts that has run so long."""
    ms = 1000 * seconds
    idle = ms * (1 - busy - backpressured)
    return SubtaskSample(rate * seconds, ms * busy, idle, ms * backpressured)


def vertex(seconds: float, rate: float, busy: float, **more: Any) -> VertexSample:
    """A vertex of even subtasks that has run so long; `rate` is all of it."""
    parallelism = more.pop("parallelism", 4)
    one = subtask(seconds, rate / parallelism, busy, more.pop("backpressured", 0.0))
    fields: dict[str, Any] = {
        "id": "v",
        "name": "orders",
        "parallelism": parallelism,
        "parallelism_max": 128,
        "inputs": (),
        "records_in": rate * seconds,
        "records_out": rate * seconds,
        "subtasks": (one,) * parallelism,
    }
    return VertexSample(**{**fields, **more})


def sample(seconds: float, *vertices: VertexSample, started: float = 0.0) -> JobSample:
    """A look at a job that has run for so many seconds."""
    return JobSample(started + seconds, "job-1", started, vertices)
