"""Logs of what a cluster is asked to begin and to end: wrappers of `submit`, `stop` and
`savepoint`.

Each logs before it asks and once it has an answer, under the name of the cluster's module.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Protocol, TypeVar

from stateshift.clusters.protocol import (
    CheckpointRequest,
    JobStatus,
    SavepointRequest,
    StopRequest,
    Submission,
)
from stateshift.clusters.redaction import redact, redact_words


class Named(Protocol):
    """A cluster, as far as logs name it."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)
R = TypeVar("R", SavepointRequest, CheckpointRequest)


def log_command(log: logging.Logger, cluster: str, arguments: Sequence[str]) -> None:
    """Log a command that is run, without the secrets in it."""
    if log.isEnabledFor(logging.INFO):
        command = redact(shlex.join(redact_words(arguments)), os.environ)
        log.info("%s: run %s", cluster, command)


def logs_submission(submit: Callable[[C, Submission], str]) -> Callable[[C, Submission], str]:
    """Log the job that is submitted, and the id that the cluster gave it."""

    @wraps(submit)
    def logged(self: C, submission: Submission) -> str:
        log = logging.getLogger(type(self).__module__)
        place = redact(submission.location)
        log.info("%s: submit %s as %s, from %s", self.name, submission.job, submission.tag, place)
        id = submit(self, submission)
        log.info("%s: %s has the id %s", self.name, submission.tag, id)
        return id

    return logged


def logs_stop(stop: Callable[[C, StopRequest], JobStatus]) -> Callable[[C, StopRequest], JobStatus]:
    """Log the job that is stopped, and what it is then."""

    @wraps(stop)
    def logged(self: C, request: StopRequest) -> JobStatus:
        log = logging.getLogger(type(self).__module__)
        log.info("%s: stop %s (%s)", self.name, request.job, request.tag or "not ours")
        status = stop(self, request)
        log.info("%s: %s is %s", self.name, request.job, status.state)
        return status

    return logged


def logs_image(verb: str) -> Callable[[Callable[[C, R], str]], Callable[[C, R], str]]:
    """Log the image that a job is asked for, and where it is."""

    def decorate(take: Callable[[C, R], str]) -> Callable[[C, R], str]:
        @wraps(take)
        def logged(self: C, request: R) -> str:
            log = logging.getLogger(type(self).__module__)
            log.info("%s: %s of %s as %s", self.name, verb, request.job_id, request.tag)
            location = take(self, request)
            log.info("%s: %s of %s is %s", self.name, verb, request.job_id, redact(location))
            return location

        return logged

    return decorate
