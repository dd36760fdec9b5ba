"""What the native client raises, in our words."""

from __future__ import annotations

import pytest

from stateshift.errors import MissingFile, StorageError, TransientStorageError
from stateshift.storage.hdfs import native
from stateshift.storage.hdfs.native import NativeCalls

WHERE = "hdfs://here/checkpoint"


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_file_info(self, path: str) -> object:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("gone"), type(None)),
        (
            RuntimeError('DataTransferError("All DataNodes failed: [Datanode]")'),
            TransientStorageError,
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'),
            StorageError,
        ),
        (OSError("connection refused"), TransientStorageError),
    ],
)
def test_a_block_that_no_datanode_gives_is_asked_for_again(error: Exception, kind: type) -> None:
    calls = NativeCalls(Raising(error), WHERE)
    if kind is type(None):
        assert calls.status("/checkpoint/a") is None
        return
    with pytest.raises(kind) as caught:
        calls.status("/checkpoint/a")
    assert not isinstance(caught.value, MissingFile)
    assert isinstance(caught.value, TransientStorageError) == (kind is TransientStorageError)


def test_ports_that_do_not_answer_are_told_with_the_way_over_http() -> None:
    calls = NativeCalls(Raising(OSError("connection refused")), WHERE)
    with pytest.raises(TransientStorageError) as caught:
        calls.status("/checkpoint/a")
    assert "STATESHIFT_HDFS=web" in str(caught.value.hint)


class Content:
    """A file as the native client opens it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[tuple[int, int]] = []

    def read(self, path: str) -> Content:
        return self

    def __len__(self) -> int:
        return len(self.content)

    def read_range(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.content[offset : offset + length]


@pytest.mark.parametrize(
    ("size", "offset", "length", "asked"),
    [
        (0, 0, None, []),
        (3, 0, None, [(0, 3)]),
        (8, 0, None, [(0, 4), (4, 4)]),
        (9, 2, None, [(2, 4), (6, 3)]),
        (9, 2, 5, [(2, 4), (6, 1)]),
        (9, 12, None, []),
    ],
)
def test_a_file_is_read_by_whole_pieces(
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    offset: int,
    length: int | None,
    asked: list[tuple[int, int]],
) -> None:
    monkeypatch.setattr(native, "CHUNK", 4)
    content = bytes(range(size))
    file = Content(content)
    pieces = list(NativeCalls(file, WHERE).open("/checkpoint/a", offset, length))
    assert file.asked == asked
    end = None if length is None else offset + length
    assert b"".join(pieces) == content[offset:end]
