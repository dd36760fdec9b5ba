"""Errors become text here and nowhere else: `error: fact`, `hint: way out`, and the exit code of
their class.

    StateshiftError  its own exit code; a SpecError lists every complaint
    MemoryError      3, as TooLarge: what is read is larger than this machine, or its limits, can
                     hold
    OSError          6, as a StorageError: a disk that is full, a file that may not be written
    Ctrl-C           130
    anything else    1, a bug of ours: the traceback is kept in a file

With `--json` the same is one document on stdout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views import problems_json
from stateshift.cli.views.text import Block, Line
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
    from stateshift.cli.views.run_json import FailedRunDocument

LONGEST = 80
_MEMORY = (
    "a smaller bound refuses earlier, and by name: STATESHIFT_MEMORY=256MiB; --parallel "
    "1 takes less at once"
)


def tell(caught: BaseException, terminal: Terminal, report: FailedRunDocument | None = None) -> int:
    """Say what went wrong; the exit code. A run's `report` takes the place of the plain error."""
    error = ours(caught)
    if error is None:
        error = _bug(caught)
    if terminal.json:
        _document(terminal, error, report)
    terminal.talk(described(error))
    return error.exit_code


def _document(terminal: Terminal, error: StateshiftError, report: FailedRunDocument | None) -> None:
    """The error's document; where stdout itself is what failed (a full disk), stderr and the
    exit code have to do.
    """
    try:
        if report is None:
            terminal.document("error", problems_json.error(error))
        else:
            terminal.document("report", report)
    except BrokenPipeError:
        raise
    except OSError:
        return


def ours(caught: BaseException) -> StateshiftError | None:
    """The error as one of ours, None where only a bug explains it."""
    match caught:
        case StateshiftError():
            return caught
        case MemoryError():
            return TooLarge("memory ran out", hint=_MEMORY)
        case KeyboardInterrupt():
            return Interrupted("interrupted; nothing was changed")
        case OSError() if caught.filename is not None:
            return StorageError(
                f"{caught.strerror or caught}: {caught.filename}", location=str(caught.filename)
            )
        case OSError() if caught.errno is not None:
            return StorageError(caught.strerror or str(caught))
    return None


def described(error: StateshiftError) -> Iterator[Block]:
    """The error as it is shown on stderr."""
    if isinstance(error, SpecError) and len(error.complaints) > 1:
        yield Line(
            f"error: {_file(error)}the request is not valid, for {len(error.complaints)} reasons",
            "bad",
        )
        yield from (Line(_complaint(complaint), indent=2) for complaint in error.complaints)
    elif isinstance(error, SpecError) and error.complaints:
        yield Line(
            f"error: {_file(error)}{_complaint(error.complaints[0], bool(_file(error)))}", "bad"
        )
    else:
        yield Line(f"error: {_file(error)}{redact(str(error))}", "bad")
    if error.where.get("step"):
        yield Line(f"step: {error.where['step']}", "dim")
    if error.hint:
        yield Line(f"hint: {redact(error.hint)}")


def _file(error: StateshiftError) -> str:
    """`orders.json: ` where a spec or a saved plan is wrong; a FormatError says its path itself."""
    path = error.where.get("path") if isinstance(error, SpecError | PlanError) else None
    return f"{redact(str(path))}: " if path else ""


def _complaint(complaint: Complaint, in_file: bool = False) -> str:
    """`pointer: message (found …, expected …)`. What the message says already is not said again."""
    unsaid = complaint.found is not None and f"{complaint.found!r}" not in complaint.message
    found = f"found {_short(complaint.found)}" if unsaid else ""
    expected = (
        f"expected {complaint.expected}"
        if complaint.expected and not _pointed_out(complaint)
        else ""
    )
    both = ", ".join(part for part in (found, expected) if part)
    pointer = complaint.pointer or ("" if in_file else "/")
    return redact(
        (f"{pointer}: " if pointer else "") + complaint.message + (f" ({both})" if both else "")
    )


def _pointed_out(complaint: Complaint) -> bool:
    """Whether the message names the way out: the key that was meant, instead of all thirty that
    there are.
    """
    message = complaint.message
    unknown = message.startswith("unknown key ") and (
        ", did you mean " in message or ", which belongs " in message
    )
    return unknown or (complaint.expected or "") in message


def _short(value: Any) -> str:
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
