"""Errors become text here and nowhere else: `error: fact`, `hint: way out`, and the exit code of their class.

    StateshiftError    its own exit code; a SpecError lists every complaint
    OSError            6, as a StorageError: a disk that is full, a file that may not be written
    Ctrl-C             130
    anything else      1, a bug of ours: the traceback is kept in a file

With `--json` the same is one document on stdout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stateshift.cli import as_json
from stateshift.cli.terminal import Terminal
from stateshift.cli.text import Block, Line
from stateshift.errors import Complaint, Interrupted, SpecError, StateshiftError, StorageError
from stateshift.storage.locations import redact

LONGEST = 80


def tell(caught: BaseException, terminal: Terminal, document: dict[str, Any] | None = None) -> int:
    """Say what went wrong; the exit code. `document` takes the place of the plain error's where more is known."""
    error = ours(caught)
    if error is None:
        error = _bug(caught)
    if terminal.json:
        terminal.document(document or as_json.error(error))
    terminal.talk(described(error))
    return error.exit_code


def ours(caught: BaseException) -> StateshiftError | None:
    """The error as one of ours, None where only a bug explains it."""
    match caught:
        case StateshiftError():
            return caught
        case KeyboardInterrupt():
            return Interrupted("interrupted; nothing was changed")
        case OSError() if caught.filename is not None:
            return StorageError(f"{caught.strerror or caught}: {caught.filename}", location=str(caught.filename))
        case OSError() if caught.errno is not None:
            return StorageError(caught.strerror or str(caught))
    return None


def described(error: StateshiftError) -> Iterator[Block]:
    """The error as it is shown on stderr."""
    if isinstance(error, SpecError) and len(error.complaints) > 1:
        yield Line(f"error: the request is not valid, for {len(error.complaints)} reasons", "bad")
        yield from (Line(_complaint(complaint), indent=2) for complaint in error.complaints)
    elif isinstance(error, SpecError) and error.complaints:
        yield Line(f"error: {_complaint(error.complaints[0])}", "bad")
    else:
        yield Line(f"error: {redact(str(error))}", "bad")
    if error.where.get("step"):
        yield Line(f"step: {error.where['step']}", "dim")
    if error.hint:
        yield Line(f"hint: {redact(error.hint)}")


def _complaint(complaint: Complaint) -> str:
    """`pointer: message (found …, expected …)`."""
    found = "" if complaint.found is None else f"found {_short(complaint.found)}"
    expected = f"expected {complaint.expected}" if complaint.expected else ""
    both = ", ".join(part for part in (found, expected) if part)
    return redact(f"{complaint.pointer or '/'}: {complaint.message}" + (f" ({both})" if both else ""))


def _short(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bug(caught: BaseException) -> StateshiftError:
    path = _keep(caught)
    return StateshiftError(
        redact(f"{type(caught).__name__}: {caught}"),
        hint=f"this is a bug of ours: please report it, with {path}",
        traceback=path,
    )


def _keep(caught: BaseException) -> str:
    """Write the traceback to a file of its own that only its owner reads."""
    import os
    import platform
    import sys
    import tempfile
    import traceback

    from stateshift import __version__

    versions = f"stateshift {__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [versions, redact(" ".join(sys.argv)), "", *traceback.format_exception(caught)]
    descriptor, path = tempfile.mkstemp(prefix="stateshift-bug-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(redact("\n".join(lines)))
    return path
