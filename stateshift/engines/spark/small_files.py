"""The small files of one query's checkpoint: each by its path inside the image, each decoded or
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from threading import Lock
from typing import TypeVar

from stateshift.engines.spark.layout import under
from stateshift.errors import FormatError, MissingFile, TooLarge
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding

SMALL = 64 * 1024 * 1024
LOOKS_AT_ONCE = 16  # each holds a chunk of its file
KEPT_EACH = 64 * 1024
KEPT_FILES = 256

T = TypeVar("T")


def json_or_text(text: str | None) -> object:
    """Return decoded JSON; the text itself where it is none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(eq=False)
class _Contents:
    """Small files that were read: on a remote storage each read costs a round trip."""

    _storage: Storage
    _kept: dict[str, bytes] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def read(self, path: str) -> bytes:
        kept = self._kept.get(path)
        if kept is not None:
            return kept
        content = self._storage.read(path, SMALL)
        if len(content) <= KEPT_EACH:
            with self._lock:
                self._kept[path] = content
                if len(self._kept) > KEPT_FILES:
                    oldest = next(iter(self._kept))
                    del self._kept[oldest]
        return content


class Reading:
    """One image being read; what cannot be decoded is collected as findings rather than raised.

    `refused` are the paths inside the image that a refusal is about: the findings are for people.
    """

    def __init__(self, storage: Storage, prefix: str, contents: _Contents | None = None) -> None:
        self.storage, self.prefix = storage, prefix
        self.findings: list[Finding] = []
        self.refused: set[str] = set()
        self._contents = contents or _Contents(storage)

    def unreported(self) -> Reading:
        """Return a reading of the same image with findings of its own."""
        return Reading(self.storage, self.prefix, self._contents)

    def refuses_below(self, folder: str) -> bool:
        """Whether a refusal is about something in this folder of the image."""
        return any(path.startswith(f"{folder}/") for path in self.refused)

    def path(self, path: str) -> str:
        return under(self.prefix, path)

    def content(self, path: str) -> bytes:
        return self._contents.read(self.path(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        return self.storage.chunks(self.path(path))

    def decoded(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded file; None, and a refusal, where it is missing or damaged."""
        try:
            return decode(self.content(path))
        except MissingFile:
            self.refuse(f"{self.path(path)} is missing: a restart reads it", path)
        except TooLarge as error:
            raise error.at(self.path(path)) from error
        except FormatError as error:
            self._refuse_damaged(path, error)
        return None

    def streamed(self, path: str, decode: Callable[[Iterator[bytes]], T]) -> T | None:
        """Return a large file's decoded content; None, and a refusal, where damaged or gone."""
        try:
            return decode(self.chunks(path))
        except TooLarge as error:
            raise error.at(self.path(path)) from error
        except FormatError as error:
            self._refuse_damaged(path, error)
        except MissingFile:
            fact = f"{self.path(path)} vanished while it was looked at: the job still runs"
            self.refuse(fact, path)
        return None

    def hinted(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the same for what a restart does without: a warning where it is damaged."""
        try:
            return decode(self.content(path))
        except MissingFile:
            return None
        except FormatError as error:
            fact = f"{self.path(path)} is damaged: {error.fact}; a restart does without it"
            self.warn(fact, path, error.offset)
        return None

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Read small files together, where each waits for a network; a missing one is left out."""

        def fetch(reading: Reading, path: str) -> None:
            with suppress(MissingFile, TooLarge):
                reading.content(path)

        if self.storage.traits.at_once > 1:
            self.unreported().each(paths[:KEPT_FILES], fetch)

    def each(self, paths: Sequence[str], look: Callable[[Reading, str], T]) -> list[T]:
        """Return the result of `look` for each path. Several are looked at together where each
        waits for a network: the job may be down meanwhile. Results and findings come in the order
        of the paths.
        """
        at_once = min(len(paths), self.storage.traits.at_once, LOOKS_AT_ONCE)
        if at_once <= 1:
            return [look(self, path) for path in paths]
        own = [self.unreported() for _ in paths]
        with ThreadPoolExecutor(at_once, thread_name_prefix="look") as threads:
            looked = list(threads.map(look, own, paths))
        for reading in own:
            self.findings += reading.findings
            self.refused |= reading.refused
        return looked

    def _refuse_damaged(self, path: str, error: FormatError) -> None:
        message = f"{self.path(path)} is damaged: {error.fact}"
        if path in self.refused and any(each.message == message for each in self.findings):
            return  # whoever reads it next has no news
        self.refuse(message, path, error.offset or 0)

    def refuse(
        self,
        message: str,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        if path is not None:
            self.refused.add(path)
        way_out = hint or f"stateshift verify {quote(self.storage.location)}"
        place = self._place(path)
        self.findings.append(Finding("refuse", message, hint=way_out, path=place, offset=offset))

    def warn(self, message: str, path: str | None = None, offset: int | None = None) -> None:
        place = self._place(path)
        self.findings.append(Finding("warn", message, path=place, offset=offset))

    def _place(self, path: str | None) -> str | None:
        return self.path(path) if path else path
