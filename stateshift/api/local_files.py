"""Files on this machine that a command names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from stateshift.errors import Complaint, SpecError

# A page of a run has so many bytes, seldom more.
TRIED_BYTES: Final = 256 * 1024


def text_of(path: str, hint: str, pointer: str = "") -> str:
    """A file's text; one that cannot be read is the request's fault."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError as error:
        fact = f"not UTF-8 text (at byte {error.start})"
    except OSError as error:
        fact = f"cannot be read: {error.strerror}"
    raise SpecError((Complaint(pointer, fact),), hint=hint)


def beside(path: str) -> Callable[[str], str]:
    """Files that a file names are looked for where it is."""

    def opened(name: str) -> str:
        with open(os.path.join(os.path.dirname(path), name), encoding="utf-8-sig") as file:
            return file.read()

    return opened


def write_whole(path: str, text: str) -> None:
    """Write a file whole or not at all, and durably: somebody may read it at any time.

    Raises:
        OSError: it cannot be written.
    """
    with _written_beside(path, text) as temporary:
        os.replace(temporary, path)


def write_new(path: str, text: str) -> None:
    """Write a file whole, where there is none; never in the place of another.

    Raises:
        OSError: there is one, or it cannot be written.
    """
    with _written_beside(path, text) as temporary:
        os.link(temporary, path)


def try_writing(path: str) -> None:
    """Write a file of a usual size beside `path`, and remove it: whether one can be written is
    asked before the work whose result it is to hold.

    Raises:
        OSError: it cannot.
    """
    with _written_beside(path, " " * TRIED_BYTES):
        pass


@contextmanager
def _written_beside(path: str, text: str) -> Iterator[str]:
    """Write a temporary file, durably, and remove it at the end if it is still there."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
