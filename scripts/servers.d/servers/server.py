"""What a server is, to whoever starts it: values and functions of its place, nothing kept.

fetch()           what it is made of; Unavailable if it cannot be had
configure(place)  writes its configuration, from its ports; again whenever these change
stages(place)     its processes in the order in which they are started: each stage is awaited before
                  the next
settle(place)     what remains to be done when all answer, and is waited for
leavings(place)   files that it puts elsewhere
exports(place)    how to reach it, as environment variables
hdfs(place)       what Hadoop's clients must be told to know it by its name; None for what is no
                  HDFS
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servers.place import Place, Role


@dataclass(frozen=True)
class Stage:
    """`before` is done once more if it was interrupted, and skipped by itself if it was not."""

    roles: tuple[Role, ...]
    before: Callable[[], None] | None = None


class Server(ABC):
    name: str
    apart: bool = False  # not meant by the name of its kind
    built: bool = False  # from sources, or of Debian's packages: started only where it is named

    @property
    @abstractmethod
    def ports(self) -> tuple[str, ...]:
        """What its ports are called."""

    @abstractmethod
    def fetch(self) -> None: ...

    @abstractmethod
    def configure(self, place: Place) -> None: ...

    @abstractmethod
    def stages(self, place: Place) -> tuple[Stage, ...]: ...

    def settle(self, place: Place) -> None:
        return

    @abstractmethod
    def exports(self, place: Place) -> dict[str, str]: ...

    def leavings(self, place: Place) -> tuple[Path, ...]:
        """Files it puts elsewhere, whatever it is told; removed when it is stopped."""
        return ()

    def hdfs(self, place: Place) -> dict[str, str] | None:
        return None
