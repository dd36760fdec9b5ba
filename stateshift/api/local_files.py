"""Files on this machine that a command names."""

from __future__ import annotations

import os
from collections.abc import Callable

from stateshift.errors import Complaint, SpecError


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
