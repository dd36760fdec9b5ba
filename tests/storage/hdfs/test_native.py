"""What the native client raises, in our words."""

from __future__ import annotations

from collections.abc import Iterator

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
    """A file as the native client opens it, sent in packets of 3 bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, path: str) -> Content:
        return self

    def __len__(self) -> int:
        return len(self.content)

    def read_range_stream(self, offset: int, length: int) -> Iterator[bytes]:
        for start in range(offset, offset + length, 3):
            yield self.content[start : min(start + 3, offset + length)]


@pytest.mark.parametrize(
    ("size", "offset", "length", "pieces"),
    [
        (0, 0, None, []),
        (3, 0, None, [3]),
        (12, 0, None, [6, 6]),
        (13, 2, None, [6, 5]),
        (13, 2, 7, [6, 1]),
        (9, 12, None, []),
    ],
)
def test_what_a_datanode_sends_is_joined(
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    offset: int,
    length: int | None,
    pieces: list[int],
) -> None:
    monkeypatch.setattr(native, "PIECE", 4)
    content = bytes(range(size))
    got = list(NativeCalls(Content(content), WHERE).open("/checkpoint/a", offset, length))
    assert list(map(len, got)) == pieces
    end = None if length is None else offset + length
    assert b"".join(got) == content[offset:end]


def test_a_file_that_ends_before_its_length_is_an_error() -> None:
    class Short(Content):
        def __len__(self) -> int:
            return len(self.content) + 1

    with pytest.raises(TransientStorageError):
        list(NativeCalls(Short(b"abc"), WHERE).open("/checkpoint/a", 0, None))
