"""The names of our temporary files: in the directory of the file they become, and recognised by
everybody.

The name of a write's temporary file is a function of the final name, so that a killed write's
leftover is overwritten by its repeat instead of lying about, and short whatever the final name is.
If the repeat may begin before the killed one is really dead (on another machine), each works
`apart`, under names of its own.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from stateshift.formats.marks import TEMPORARY

_END = ".tmp"
_apart: ContextVar[str] = ContextVar("apart", default="")


def temporary(path: str) -> str:
    """Return the name under which the content of `path` is collected until it is whole."""
    directory, slash, name = path.rpartition("/")
    own = _apart.get().encode()
    digest = hashlib.blake2b(
        name.encode("utf-8", "surrogatepass"), digest_size=16, key=own
    ).hexdigest()
    return f"{directory}{slash}{TEMPORARY}{digest}{_END}"


@contextmanager
def apart(token: str) -> Iterator[None]:
    """Give this thread's temporary files names of their own, for two processes at one path."""
    before = _apart.set(hashlib.blake2b(token.encode(), digest_size=32).hexdigest())
    try:
        yield
    finally:
        _apart.reset(before)


def unique_temporary(path: str) -> str:
    """Return a temporary name that nobody else uses."""
    directory, slash, _ = path.rpartition("/")
    return f"{directory}{slash}{TEMPORARY}{secrets.token_hex(16)}{_END}"


def is_temporary(name: str) -> bool:
    """Whether a file of this name (or path) is one of ours that never became whole."""
    name = name.rpartition("/")[2]
    return name.startswith(TEMPORARY) and name.endswith(_END)


@dataclass(eq=False)
class Writing:
    """Temporary files that threads of one storage write: no two the same, and no leftovers."""

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _names: set[str] = field(default_factory=set, init=False)

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._names

    @contextmanager
    def to(self, path: str, remove_quietly: Callable[[str], None]) -> Iterator[str]:
        """Give a temporary name for `path` that no other thread uses; removed if this fails."""
        with self._lock:
            temp = temporary(path)
            if temp in self._names:
                temp = unique_temporary(path)
            self._names.add(temp)
        try:
            yield temp
        except BaseException:
            remove_quietly(temp)
            raise
        finally:
            with self._lock:
                self._names.discard(temp)
