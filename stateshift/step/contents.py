"""The files of steps: content that is recognised by its digest, written where it is not there
already, asked for again, and removed where it is still ours.

Large files are read ahead while the piece before is still being written: else each of two networks,
or directions of one, is idle while the other is used. All of them share PIECES_MAX pieces, so that
many at once take no more memory than a few. One that gets none is read piece by piece.

A step does several items at once (`each`) where they wait for a network. The storages say how many:
on a disk one after the other is as fast. A storage with a lane (`storage.wrappers`) is used by all
steps of a run together for as many as are worth it, one without for `Traits.at_once` in each step.
Results come in the items' order. After the first failure or an interruption no more are begun,
those that run may finish, and it is raised: the step's repeat finds what they left.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import chain
from queue import Empty, Full, Queue
from typing import TypeVar

from stateshift.errors import MissingFile
from stateshift.step.protocol import Discrepancy, FileEvidence
from stateshift.storage.protocol import Content, Input, Storage
from stateshift.survey import FileInfo
from stateshift.world import World

# From so many on a step's target is listed once, for all steps, instead of asked for each file.
LISTED_FILES = 16

# From here on a file is worth the question for its storage's own checksum, two requests on each
# side.
LARGE_BYTES = 1024 * 1024


def digest_of(content: Iterator[bytes]) -> tuple[int, str]:
    """Return size and sha256 of a stream."""
    digest, size = hashlib.sha256(), 0
    for chunk in content:
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def same_checksum(source: Storage, target: Storage, path: str, target_path: str) -> bool:
    """Whether both sides hold the same bytes, by the storages' own word, if both have one."""
    kept = source.checksum(path)
    return kept is not None and kept == target.checksum(target_path)


def may_hold(world: World, target: Storage, path: str, files: int) -> bool:
    """Whether the target may have had this path before; `files` are written there together."""
    if world.found is None:
        return True
    return world.found.may_hold(target, path, worthwhile=files >= LISTED_FILES)


def reading(source: Storage, item: FileInfo) -> Input:
    """Return a reader of a planned file. Only from the begin it reads ahead."""
    is_far = source.traits.at_once > 1  # a disk is read ahead by its system

    def content(offset: int = 0) -> Iterator[bytes]:
        chunks = source.chunks(item.path, offset, item.size)
        if is_far and not offset and item.size >= FROM_BYTES:
            chunks = ahead(chunks)
        try:
            yield from chunks
        except MissingFile as error:
            raise MissingFile(
                f"{item.path} was there when the plan was made and is gone",
                location=error.location,
                hint="a job that runs tidies up behind us: stop it, then plan again. If the source "
                "is lost, keep what was copied, and bring the source back: `stateshift resume "
                "WORKDIR`",
            ) from error

    return content


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be written. One that makes an image visible has to be `whole`: durable before it is
    seen. If the `size` that it has to have is known, no other content takes its place.
    """

    path: str
    content: Content
    modified: float | None = None
    whole: bool = False
    size: int | None = None


def settle(target: Storage, file: NewFile, new: bool = False) -> FileEvidence:
    """Make a path hold its content: by leaving it alone where it does already, else by writing it.
    A `new` one is not looked for: it was not there when the place was listed.
    """
    before = None if new else target.stat(file.path)
    if before is not None:
        size, digest = digest_of(file.content())
        if size == before.size and digest_of(target.chunks(file.path)) == (size, digest):
            return FileEvidence(file.path, size, digest)
    content = _Digesting(file.content)
    try:
        if file.whole:
            new_content = b"".join(content())  # read before the old one goes
            if file.size in (None, content.size):
                target.remove(file.path)
                target.create(file.path, new_content)
        else:
            target.write(file.path, content, file.modified)
    finally:
        content.close()
    return FileEvidence(file.path, content.size, content.digest)


@dataclass(eq=False)
class _Digesting:
    """A content that remembers size and digest of what was last read of it."""

    _content: Content
    size: int = field(default=0, init=False)
    digest: str = field(default="", init=False)
    _chunks: Iterator[bytes] = field(default_factory=lambda: iter(()), init=False)

    def close(self) -> None:
        """Close what is read from: where a write has failed, a traceback would keep it open."""
        if isinstance(self._chunks, Generator):
            with suppress(ValueError):  # a client that has given up may still have a thread in it
                self._chunks.close()

    def __call__(self) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        self._chunks = self._content()
        for chunk in self._chunks:
            digest.update(chunk)
            size += len(chunk)
            yield chunk
        self.size, self.digest = size, digest.hexdigest()


def files_hold(
    world: World, location: str, files: Sequence[FileEvidence], replaceable: bool = False
) -> list[Discrepancy]:
    """Return a discrepancy for each file that has changed; `replaceable` ones need only exist."""
    storage = world.storage(location)

    def ask(file: FileEvidence) -> Discrepancy | None:
        path, size, digest = file
        info = storage.stat(path)
        if info is None:
            return Discrepancy(path, f"{size} bytes", "nothing")
        if replaceable:
            return None
        if info.size != size:
            return Discrepancy(path, f"{size} bytes", f"{info.size} bytes")
        if digest_of(storage.chunks(path))[1] != digest:
            return Discrepancy(path, f"sha256 {digest[:12]}", "other content of the same size")
        return None

    answers = each(world, files, ask, storage)
    return [answer for answer in answers if answer is not None]


def remove_ours(
    world: World, location: str, paths: tuple[str, ...], written: Sequence[FileEvidence] | None
) -> list[str]:
    """Remove what we wrote, last written first, but leave files that somebody changed since."""
    storage = world.storage(location)
    changed = set()
    if written is not None:
        changed = {broken.place for broken in files_hold(world, location, written)}

    def remove(path: str) -> str | None:
        if path not in changed:
            storage.remove(path)
        elif storage.stat(path) is not None:
            return f"{storage.location}/{path}: changed since it was written, left as it is"
        return None

    answers = each(world, tuple(reversed(paths)), remove, storage)
    return [left for left in answers if left is not None]


def paths_in_words(paths: tuple[str, ...]) -> str:
    """Return the path, or the number of paths with the first and the last."""
    if not paths:
        return "nothing"
    if len(paths) == 1:
        return paths[0]
    return f"{len(paths)} files ({paths[0]} … {paths[-1]})"


# Smaller ones are read whole before anything of them is sent.
FROM_BYTES = 8 * 1024 * 1024

PIECES = 4  # of one file
PIECES_MAX = 24  # of all: at 4 MiB each some 100 MiB

_SECONDS_BETWEEN = 0.05

_free = threading.BoundedSemaphore(PIECES_MAX)


def ahead(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same chunks. An error is raised after those that came before it."""
    reader = _Reader(chunks)
    try:
        threading.Thread(
            target=copy_context().run, args=(reader.run,), name="ahead", daemon=True
        ).start()
    except RuntimeError:  # no more threads: then as if there were nothing to gain
        yield from chunks
        return
    try:
        yield from reader.read()
    finally:
        reader.close()


@dataclass(eq=False)
class _Reader:
    """A thread that fills a queue, at last with None or an error. Each chunk holds one of the
    pieces, but for the first after one that was taken: no reader waits for other files.
    """

    _chunks: Iterator[bytes]
    _queue: Queue[tuple[bytes | BaseException | None, bool]] = field(
        default_factory=lambda: Queue(PIECES), init=False
    )
    _closed: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self) -> None:
        last: BaseException | None = None
        try:
            while (piece := self._piece()) is not None:
                chunk = None
                try:
                    chunk = next(self._chunks, None)
                finally:
                    if chunk is None:
                        _give_back(piece)
                if chunk is None:
                    break
                self._put(chunk, piece)
            if isinstance(self._chunks, Generator):
                self._chunks.close()
        except BaseException as error:
            last = error
        self._put(last, False)
        del last  # its traceback holds this frame
        if self._closed.is_set():
            self._empty()

    def read(self) -> Iterator[bytes]:
        while True:
            chunk, piece = self._queue.get()
            _give_back(piece)
            if isinstance(chunk, BaseException):
                try:
                    raise chunk
                finally:
                    del chunk
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        """End the thread, without waiting for the piece that it reads: nobody wants that."""
        self._closed.set()
        self._empty()

    def _empty(self) -> None:
        with suppress(Empty):
            while True:
                _give_back(self._queue.get_nowait()[1])

    def _piece(self) -> bool | None:
        """Whether the next chunk holds a piece; None once nobody wants it."""
        while not self._closed.is_set():
            if self._queue.empty():
                return False
            if _free.acquire(timeout=_SECONDS_BETWEEN):
                return True
        return None

    def _put(self, chunk: bytes | BaseException | None, piece: bool) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put((chunk, piece), timeout=_SECONDS_BETWEEN)
                return
            except Full:
                continue
        _give_back(piece)


def _give_back(piece: bool) -> None:
    if piece:
        _free.release()


T = TypeVar("T")
R = TypeVar("R")


def each(
    world: World,
    items: Sequence[T],
    do: Callable[[T], R],
    *storages: Storage,
    size: Callable[[T], int] = lambda _: 0,
) -> list[R]:
    """Do every item. Return the results in order. `size` is the bytes that an item moves."""
    at_once = min(len(items), max(storage.traits.at_once for storage in storages))
    if at_once <= 1:
        return [_one(world, item, do) for item in items]
    # Each lane once, and in one order: steps that wait for two do not wait for each other.
    lane_at = {storage.location: storage.traits.lane for storage in storages}
    lanes = [lane for _, lane in sorted(lane_at.items()) if lane is not None]
    failed = threading.Event()

    def one_of_many(item: T) -> list[R]:
        moved = None
        try:
            if failed.is_set():
                return []
            done = [_one(world, item, do)]
            moved = size(item)
            return done
        except BaseException:
            failed.set()
            raise
        finally:
            for lane in lanes:
                lane.leave(moved)

    with ThreadPoolExecutor(at_once, thread_name_prefix="item") as threads:
        futures = []
        for item in items:
            with ExitStack() as entered:
                for lane in lanes:
                    lane.enter()
                    entered.callback(lane.leave, None)
                if failed.is_set():
                    break
                futures.append(threads.submit(copy_context().run, one_of_many, item))
                entered.pop_all()
    return list(chain.from_iterable(future.result() for future in futures))


def _one(world: World, item: T, do: Callable[[T], R]) -> R:
    world.check_interrupted()
    return do(item)
