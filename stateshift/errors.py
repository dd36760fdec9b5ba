"""The error tree: split by who can fix it. Only the cli turns an error into text; only storage
wrappers retry.

Every error is one line of fact, and a hint: what to do about it, best of all a command that can be
pasted. Its class has the exit code of the process: 1 is a bug of ours, 130 an interruption, which
can always be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

NOT_SEEN_COMPLETE = 9  # decided, and carried out by running jobs later than somebody waited for
# The exit code of a run that ends with a job down which it has stopped: whoever is on call acts.
JOB_DOWN = 10


class StateshiftError(Exception):
    """A fact, and a hint."""

    exit_code = 1

    def __init__(self, fact: str, *, hint: str | None = None, **where: Any) -> None:
        super().__init__(fact)
        self.fact = fact
        self.hint = hint
        self.where = {key: value for key, value in where.items() if value is not None}

    def with_hint(self, hint: str | None) -> Self:
        """Return the same error with another hint."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        other.hint = hint
        return other.with_traceback(self.__traceback__)

    def restated(self, fact: str, exit_code: int) -> Self:
        """Return the same error with another fact and exit code."""
        other = self.with_hint(self.hint)
        other.fact, other.exit_code, other.args = fact, exit_code, (fact,)
        return other

    def as_json(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": type(self).__name__,
            "message": self.fact,
            "hint": self.hint,
            "exit_code": self.exit_code,
            **self.where,
        }


@dataclass(frozen=True)
class Complaint:
    """One thing wrong with a spec: where, what was found there, and what was expected. `line` and
    `column` are those of the file, as far as there is one.
    """

    pointer: str
    message: str
    found: object = None
    expected: str | None = None
    line: int | None = None
    column: int | None = None


class SpecError(StateshiftError):
    """The request is not valid. Holds every complaint, not only the first."""

    exit_code = 2

    def __init__(self, complaints: tuple[Complaint, ...], *, hint: str | None = None) -> None:
        first = (
            f"{complaints[0].pointer or '/'}: {complaints[0].message}"
            if complaints
            else "not a valid spec"
        )
        more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
        super().__init__(first + more, hint=hint)
        self.complaints = complaints

    @classmethod
    def of(
        cls,
        pointer: str,
        message: str,
        found: object = None,
        expected: str | None = None,
        *,
        hint: str | None = None,
    ) -> SpecError:
        """Return the error of one complaint."""
        return cls((Complaint(pointer, message, found, expected),), hint=hint)

    def as_json(self) -> dict[str, object]:
        return {
            **super().as_json(),
            "complaints": [dict(vars(complaint)) for complaint in self.complaints],
        }


class FormatError(StateshiftError):
    """Bytes are not what their format says. `where` holds path and offset."""

    exit_code = 3

    def __init__(
        self,
        fact: str,
        path: str | None = None,
        offset: int | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(fact, hint=hint, path=path, offset=offset)
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        return f"{place}{self.fact}{at}"

    def at(self, path: str) -> FormatError:
        """The same error, with the path that the pure decoder could not know."""
        return type(self)(self.fact, self.path or path, self.offset, hint=self.hint)


class UnknownVersion(FormatError):
    """A format version that this stateshift has never seen: refused by name, never guessed."""


class OldVersion(UnknownVersion):
    """A format version that was written long ago and is not read here: the bytes may be whole."""


class TooLarge(FormatError):
    """Reading it would take more memory than is allowed: whether it is damaged is not known."""


@contextmanager
def errors_at(path: str) -> Iterator[None]:
    """Name the file in errors that are raised inside."""
    try:
        yield
    except FormatError as error:
        raise error.at(path) from error


class PlanError(StateshiftError):
    """The request does not fit what was found."""

    exit_code = 4


class PolicyError(PlanError):
    """A rule forbids a new run, now: at another hour, or for somebody else, it may be allowed."""


class UnsignedError(PolicyError):
    """A rule asks for a plan that somebody has signed, and nobody has yet."""


class StalePlan(PlanError):
    """The facts are no longer those that the plan was made from."""


class OtherRunError(StalePlan):
    """Another run has fenced the source meanwhile: the job is that run's to start."""


class LastCopyError(PlanError):
    """A deletion might take the last copy."""


class Incompatible(PlanError):
    """The two ends differ in a way the engine would not survive."""


class VerifyError(StateshiftError):
    """An effect does not hold."""

    exit_code = 5


class StorageError(StateshiftError):
    """A storage failed. `where` holds the location."""

    exit_code = 6

    def __init__(self, fact: str, *, location: str | None = None, hint: str | None = None) -> None:
        super().__init__(fact, hint=hint, location=location)
        self.location = location


class MissingFile(StorageError):
    """It is not there."""


class NothingThere(MissingFile):
    """Nothing is at a place that the request names: another try finds nothing either."""

    exit_code = PlanError.exit_code


class AlreadyThere(StorageError):
    """An exclusive create found that somebody was first."""


class TransientStorageError(StorageError):
    """It may work in a moment. The Retrying wrapper catches this one and no other."""


class ClusterError(StateshiftError):
    """A cluster failed. `where` holds cluster and job."""

    exit_code = 7

    def __init__(
        self,
        fact: str,
        *,
        cluster: str | None = None,
        job: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(fact, hint=hint, cluster=cluster, job=job)


class JournalError(StateshiftError):
    """The journal is damaged, foreign or held by another process."""

    exit_code = 8

    def __init__(self, fact: str, *, record: int | None = None, hint: str | None = None) -> None:
        super().__init__(fact, hint=hint, record=record)


class NoSuchRun(JournalError):
    """The request names a run, and none is there."""

    exit_code = PlanError.exit_code


class NotConfirmed(StateshiftError):
    """Somebody was asked whether to go on, and said no: nothing was done."""

    exit_code = PlanError.exit_code


class Interrupted(StateshiftError):
    """Asked to stop between two writes. The hint is the resume command."""

    exit_code = 130
