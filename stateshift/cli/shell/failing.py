"""Errors become text here and nowhere else: `error: fact`, `hint: way out`, and the exit code of
their class.

    StateshiftError  its own exit code; a SpecError lists every complaint
    MemoryError      3, as TooLarge: what is read is larger than this machine, or its limits, can
                     hold
    OutputError      6: stdout cannot be written; no storage is at fault
    OSError          6, as a StorageError: a disk that is full, a file that may not be written
    Ctrl-C           130
    anything else    1, a bug of ours: the traceback is kept in a file

With `--json` the same is one document on stdout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stateshift.cli.shell.terminal import OutputError, Terminal, drop
from stateshift.cli.views.text import Block, Line
from stateshift.documents.problems import error_document
from stateshift.errors import (
    Complaint,
    Interrupted,
    PlanError,
    SpecError,
    StateshiftError,
    StorageError,
    TooLarge,
)
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.documents.run import FailedRunDocument

LONGEST = 80
_MEMORY = (
    "a smaller bound refuses earlier, and by name: STATESHIFT_MEMORY=256MiB; --parallel "
    "1 takes less at once"
)


def tell(caught: BaseException, terminal: Terminal, report: FailedRunDocument | None = None) -> int:
    """Show the error; return the exit code. A run's `report` takes the place of the plain
    error.
    """
    error = ours(caught)
    if error is None:
        error = _bug(caught)
    if terminal.json:
        _document(terminal, error, report)
    terminal.talk(describe_error(error))
    _drop_what_is_stuck()
    return error.exit_code


def tell_aborted(
    terminal: Terminal, name: str, document: Mapping[str, object], error: StateshiftError
) -> int:
    """Say that running jobs did not do what was asked of them, with a document of its own; return
    the exit code.
    """
    if terminal.json:
        terminal.document(name, document)
    terminal.talk(describe_error(error))
    return error.exit_code


def _drop_what_is_stuck() -> None:
    """Let go of what stdout cannot write, so that the exit code is ours."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        drop(sys.stdout)


def _document(terminal: Terminal, error: StateshiftError, report: FailedRunDocument | None) -> None:
    """Print the error's document; where stdout itself is what failed (a full disk), stderr and the
    exit code have to do.
    """
    try:
        if report is None:
            terminal.document("error", error_document(error))
        else:
            terminal.document("report", report)
    except BrokenPipeError:
        raise
    except OSError:
        return


def ours(caught: BaseException) -> StateshiftError | None:
    """Return the error as one of ours, None where only a bug explains it."""
    match caught:
        case StateshiftError():
            return caught
        case MemoryError():
            return TooLarge("memory ran out", hint=_MEMORY)
        case KeyboardInterrupt():
            return Interrupted("interrupted; nothing was changed")
        case OutputError():
            return unwritten(caught)
        case OSError():
            return _storage_error(caught)
    return None


def unwritten(caught: OutputError, way_out: str = "") -> StorageError:
    """Return the error of an output that cannot be written; `way_out` says where else its content
    is.
    """
    hint = "send stdout to a terminal, a pipe, or a file on a disk that has room"
    if way_out:
        hint = f"{way_out}; or {hint}"
    return StorageError(f"the output (stdout) cannot be written: {caught.strerror}", hint=hint)


def _storage_error(caught: OSError) -> StorageError | None:
    """Return an error of the file system; None where no system call failed."""
    if caught.filename is not None:
        place = str(caught.filename)
        return StorageError(f"{caught.strerror or caught}: {place}", location=place)
    if caught.errno is not None:
        return StorageError(caught.strerror or str(caught))
    return None


def describe_error(error: StateshiftError) -> Iterator[Block]:
    """Show the error on stderr."""
    yield from _facts(error)
    if error.where.get("step"):
        yield Line(f"step: {error.where['step']}", "dim")
    if error.hint:
        yield Line(f"hint: {redact(error.hint)}")


def _facts(error: StateshiftError) -> Iterator[Block]:
    file = _file(error)
    complaints = error.complaints if isinstance(error, SpecError) else ()
    match complaints:
        case ():
            yield Line(f"error: {file}{redact(str(error))}", "bad")
        case (complaint,):
            yield Line(f"error: {file}{_complaint(complaint, bool(file))}", "bad")
        case _:
            reasons = f"{len(complaints)} reasons"
            yield Line(f"error: {file}the request is not valid, for {reasons}", "bad")
            for complaint in complaints:
                yield Line(_complaint(complaint), indent=2)


def _file(error: StateshiftError) -> str:
    """Return `orders.json: ` where a spec or a saved plan is wrong; a FormatError says its path
    itself.
    """
    path = error.where.get("path") if isinstance(error, SpecError | PlanError) else None
    return f"{redact(str(path))}: " if path else ""


def _complaint(complaint: Complaint, in_file: bool = False) -> str:
    """Return `pointer: message (found …, expected …)`."""
    details = ", ".join(_details(complaint))
    pointer = complaint.pointer or ("" if in_file else "/")
    before = f"{pointer}: " if pointer else ""
    behind = f" ({details})" if details else ""
    return redact(f"{before}{complaint.message}{behind}")


def _details(complaint: Complaint) -> Iterator[str]:
    """Yield the details that the message does not have."""
    found, message = complaint.found, complaint.message
    is_said = repr(found) in message or message.startswith(f"{found} is not ")
    if found is not None and not is_said:
        yield f"found {_short(found)}"
    if complaint.expected and not _pointed_out(complaint):
        yield f"expected {complaint.expected}"


def _pointed_out(complaint: Complaint) -> bool:
    """Return whether the message names the way out: the key that was meant, instead of all thirty
    that there are.
    """
    message = complaint.message
    if message.startswith("unknown key "):
        names_key = ", did you mean " in message or ", which belongs " in message
        if names_key:
            return True
    return (complaint.expected or "") in message


def _short(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bug(caught: BaseException) -> StateshiftError:
    from stateshift.cli.shell.environment import issues_address

    path = _keep(caught)
    address = issues_address()
    where = f", at {address}" if address else ""
    return StateshiftError(
        redact(f"{type(caught).__name__}: {caught}"),
        hint=f"this is a bug of ours: please report it, with {path}{where}",
        traceback=path,
    )


def _keep(caught: BaseException) -> str:
    """Write the traceback to a file of its own that only its owner reads."""
    import os
    import sys
    import tempfile
    import traceback

    from stateshift.cli.shell.environment import version_lines

    lines = [
        *version_lines(),
        redact(" ".join(sys.argv)),
        "",
        *traceback.format_exception(caught),
    ]
    descriptor, path = tempfile.mkstemp(prefix="stateshift-bug-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(redact("\n".join(lines)))
    return path
