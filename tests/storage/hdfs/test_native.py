"""What the native client raises, in our words."""

from __future__ import annotations

import pytest

from stateshift.errors import MissingFile, StorageError, TransientStorageError
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
