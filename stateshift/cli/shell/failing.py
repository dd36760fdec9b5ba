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
    """Show the error, or a run's `report` in its place; return the exit code."""
    error = ours(caught)
    if error is None:
        error = _bug(caught)
    # If stdout itself failed (a full disk), stderr and the exit code have to do.
    if terminal.json:
        try:
            if report is None:
                terminal.document("error", error_document(error))
            else:
                terminal.document("report", report)
        except BrokenPipeError:
            raise
        except OSError:
            pass
    terminal.talk(describe_error(error))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # let go of what it cannot write, so that the exit code is ours
        drop(sys.stdout)
    return error.exit_code


def tell_aborted(
    terminal: Terminal, name: str, document: Mapping[str, object], error: StateshiftError
) -> int:
    """Say that running jobs did not do what was asked, with a document; return the exit code."""
    if terminal.json:
        terminal.document(name, document)
    terminal.talk(describe_error(error))
    return error.exit_code


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
        case OSError() if caught.filename is not None:
            place = str(caught.filename)
            return StorageError(f"{caught.strerror or caught}: {place}", location=place)
        case OSError() if caught.errno is not None:
            return StorageError(caught.strerror or str(caught))
    return None


def unwritten(caught: OutputError, way_out: str = "") -> StorageError:
    """Return the error of an output that cannot be written; `way_out`: where its content is."""
    hint = "send stdout to a terminal, a pipe, or a file on a disk that has room"
    if way_out:
        hint = f"{way_out}; or {hint}"
    return StorageError(f"the output (stdout) cannot be written: {caught.strerror}", hint=hint)


def describe_error(error: StateshiftError) -> Iterator[Block]:
    """Show the error on stderr."""
    # A spec or a saved plan is named; a FormatError says its path itself.
    path = error.where.get("path") if isinstance(error, SpecError | PlanError) else None
    file = f"{redact(str(path))}: " if path else ""
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
    if error.where.get("step"):
        yield Line(f"step: {error.where['step']}", "dim")
    if error.hint:
        yield Line(f"hint: {redact(error.hint)}")


def _complaint(complaint: Complaint, in_file: bool = False) -> str:
    """Return `pointer (line …, column …): message (found …, expected …)`."""
    details = ", ".join(_details(complaint))
    pointer = complaint.pointer or ("" if in_file else "/")
    if complaint.line is not None:
        column = "" if complaint.column is None else f", column {complaint.column}"
        pointer = f"{pointer} (line {complaint.line}{column})".lstrip()
    before = f"{pointer}: " if pointer else ""
    behind = f" ({details})" if details else ""
    return redact(f"{before}{complaint.message}{behind}")


def _details(complaint: Complaint) -> Iterator[str]:
    """Yield the details that the message does not have."""
    import json

    found, message, expected = complaint.found, complaint.message, complaint.expected
    is_said = repr(found) in message or message.startswith(f"{found} is not ")
    if found is not None and not is_said:
        text = json.dumps(found, ensure_ascii=False, default=str)
        yield f"found {text}" if len(text) <= LONGEST else f"found {text[: LONGEST - 1]}…"
    # A message may name the key that was meant, instead of all thirty that there are.
    names_key = ", did you mean " in message or ", which belongs " in message
    is_key_named = message.startswith("unknown key ") and names_key
    if expected and expected not in message and not is_key_named:
        yield f"expected {expected}"


def _bug(caught: BaseException) -> StateshiftError:
    import os
    import tempfile
    import traceback

    from stateshift.api.environment import issues_address, version_lines

    # The traceback is kept in a file of its own that only its owner reads.
    lines = [*version_lines(), redact(" ".join(sys.argv)), "", *traceback.format_exception(caught)]
    descriptor, path = tempfile.mkstemp(prefix="stateshift-bug-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(redact("\n".join(lines)))
    address = issues_address()
    where = f", at {address}" if address else ""
    return StateshiftError(
        redact(f"{type(caught).__name__}: {caught}"),
        hint=f"this is a bug of ours: please report it, with {path}{where}",
        traceback=path,
    )
