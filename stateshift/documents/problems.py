"""The documents of errors and findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict, cast

from stateshift.documents.shape import Shape, document_of
from stateshift.storage.locations import Redacted, redact

if TYPE_CHECKING:
    from stateshift.errors import StateshiftError


class FindingDocument(TypedDict):
    """Something to know before acting."""

    level: Annotated[Literal["refuse", "warn", "note"], "refuse stops a plan"]
    message: Annotated[Redacted, "the fact, in one line"]
    path: Annotated[str | None, "the file it is about, relative to the location"]
    offset: Annotated[int | None, "the byte of that file it is about"]
    hint: Annotated[Redacted | None, "what to do about it"]
    waive: Annotated[str | None, 'the name by which the spec\'s "waive" takes it back']


class ComplaintDocument(TypedDict):
    """One thing that is wrong with a request."""

    pointer: Annotated[str, "where: a JSON pointer into the spec, a flag, or a file"]
    message: Annotated[str, "what is wrong"]
    found: Annotated[object, "the value that was found there"]
    expected: Annotated[str | None, "what would have been right"]
    line: Annotated[int | None, "the line of the file, from 1 on"]
    column: Annotated[int | None, "the character of that line, from 1 on"]


class ErrorDocument(TypedDict):
    """Why a command failed. Any command prints it in place of its own document."""

    error: Annotated[str, "the class of the error, such as StorageError"]
    message: Annotated[str, "the fact, in one line"]
    hint: Annotated[str | None, "the way out, often a command"]
    exit_code: Annotated[int, "the exit code of the process"]
    complaints: NotRequired[
        Annotated[list[ComplaintDocument], "everything that is wrong with a request (exit 2)"]
    ]
    findings: NotRequired[
        Annotated[list[FindingDocument], "what refuses a plan that was to be carried out"]
    ]
    path: NotRequired[Annotated[str, "the file that is wrong"]]
    offset: NotRequired[Annotated[int, "the byte of that file"]]
    location: NotRequired[Annotated[str, "the location that failed"]]
    cluster: NotRequired[Annotated[str, "the cluster that failed"]]
    job: NotRequired[Annotated[str, "the job it happened to"]]
    rule: NotRequired[Annotated[str, "the rule of the policy that forbids it"]]
    step: NotRequired[Annotated[str, "the step of the plan it happened in"]]
    executor: NotRequired[Annotated[str, "the host of the fleet's executor it happened on"]]
    record: NotRequired[Annotated[int, "the number of the journal's record"]]
    expected: NotRequired[Annotated[object, "what a step's evidence promised"]]
    found: NotRequired[Annotated[object, "what was found instead"]]
    traceback: NotRequired[Annotated[str, "the file that keeps the traceback of a bug (exit 1)"]]


def error_document(caught: StateshiftError) -> ErrorDocument:
    """Return the error, and where it happened as far as that is known."""
    plain = {key: redact_all(value) for key, value in caught.as_json().items()}
    return cast("ErrorDocument", plain)


def failed_document(shape: type[Shape], value: object, error: StateshiftError) -> Shape:
    """Return the document of a value that an error has ended: its own keys, then the error's."""
    own = cast("dict[str, object]", document_of(shape, value))
    return cast(Shape, {**own, **error_document(error)})


def redact_all(value: object) -> object:
    """Return a plain JSON value with the credentials taken out of all its texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item) for item in value]
    return value if value is None or isinstance(value, int | float) else str(value)
