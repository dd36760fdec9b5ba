"""What is no file is refused before a byte is asked of it, and nothing is written through a
linked directory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift.errors import StorageError
from stateshift.formats.marks import fence_text
from stateshift.storage.local.storage import LocalStorage


def make_pipe(place: Path) -> None:
    os.mkfifo(place)


def make_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(place.parent, os.O_RDONLY)
        try:  # a socket's own name may be no longer than 108 bytes
            listening.bind(f"/proc/self/fd/{folder}/{place.name}")
        finally:
            os.close(folder)


def make_endless(place: Path) -> None:
    place.symlink_to("/dev/zero")


def make_dangling(place: Path) -> None:
    place.symlink_to("nowhere")


def make_loop(place: Path) -> None:
    place.symlink_to(place.name)


SPECIAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (make_pipe, "a named pipe, not a file"),
    "socket": (make_socket, "a socket"),
    "endless": (make_endless, "a device, not a file"),
    "dangling": (make_dangling, "a symbolic link to nowhere, which is not there"),
    "loop": (make_loop, "run in a circle"),
}
OPERATIONS: dict[str, Callable[[LocalStorage], object]] = {
    "list": lambda storage: list(storage.list()),
    "stat": lambda storage: storage.stat("state/1.delta"),
    "read": lambda storage: storage.read("state/1.delta"),
    "chunks": lambda storage: list(storage.chunks("state/1.delta")),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize(("make", "fact"), SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path,
    make: Callable[[Path], None],
    fact: str,
    operation: Callable[[LocalStorage], object],
) -> None:
    (tmp_path / "state").mkdir()
    make(tmp_path / "state" / "1.delta")
    with pytest.raises(StorageError, match=fact) as caught:
        operation(LocalStorage(str(tmp_path)))
    assert "state/1.delta" in str(caught.value)
    assert caught.value.hint


def test_a_file_reached_through_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"content")
    (tmp_path / "link").symlink_to("elsewhere")
    storage = LocalStorage(str(tmp_path))
    assert storage.read("link") == b"content"
    assert b"".join(storage.chunks("link")) == b"content"


@pytest.mark.parametrize("writing", ["write", "move", "create"])
@pytest.mark.parametrize("where", ["state", "state/0/1"])
def test_nothing_is_written_through_a_linked_directory(
    tmp_path: Path, writing: str, where: str
) -> None:
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = target / where
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    storage = LocalStorage(str(target))
    (target / "here").write_bytes(b"content")
    with pytest.raises(StorageError, match="is a symbolic link") as caught:
        if writing == "write":
            storage.write(f"{where}/1.delta", lambda: iter([b"content"]))
        elif writing == "create":
            storage.create(f"{where}/1.delta", b"content")
        else:
            storage.move("here", f"{where}/1.delta")
    assert str(link) in str(caught.value)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("meanwhile", ["sync", "prune"])
def test_a_directory_that_has_become_a_link_is_refused_from_the_next_sync_on(
    tmp_path: Path, meanwhile: str
) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "target/state"
    elsewhere.mkdir()
    storage = LocalStorage(str(tmp_path / "target"))
    storage.write("state/1.delta", lambda: iter([b"content"]))
    (directory / "1.delta").unlink()
    if meanwhile == "sync":
        directory.rmdir()
        storage.sync()
    else:
        storage.prune("state")
    directory.parent.mkdir(exist_ok=True)
    directory.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.write("state/2.delta", lambda: iter([b"content"]))
    assert list(elsewhere.iterdir()) == []


def test_a_fence_in_a_linked_directory_lets_nothing_else_be_written_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "commits").symlink_to("elsewhere")
    storage = LocalStorage(str(tmp_path))
    storage.create("commits/below/7", fence_text("r1").encode())
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.write("commits/below/8", lambda: iter([b"content"]))


def test_a_fence_lies_where_the_engine_looks_for_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "commits").symlink_to("elsewhere")
    LocalStorage(str(tmp_path)).create("commits/7", fence_text("r1").encode())
    assert (tmp_path / "elsewhere/7").exists()


def test_the_target_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    LocalStorage(str(tmp_path / "link")).write("state/1.delta", lambda: iter([b"content"]))
    assert (tmp_path / "real/state/1.delta").read_bytes() == b"content"
