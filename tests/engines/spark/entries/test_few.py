"""Little shards folded record by record: what the columns come to, damaged files told alike, and
nothing read twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from stateshift.engines.spark.entries.fold import BYTES, DECODED_BYTES, Begun, few_rows, fold_shard
from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite.state import rewrite_state
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM
from stateshift.formats.spark.state_files import (
    StateRecord,
    decode_snapshot,
    encode_delta,
    with_row_checksum,
    without_row_checksum,
)
from stateshift.survey import ShardFiles
from tests.engines.spark.golden import NAMES, golden


@pytest.mark.parametrize("name", NAMES)
def test_golden_shards_fold_to_the_same_one_by_one(name: str) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        for shard in image.shards:
            rows = few_rows(Begun(storage.chunks, 1 << 30), shard, image.settings)
            provider = {path.rpartition(".")[2] for path in shard.files}
            assert (rows is None) == bool(provider - {"snapshot", "delta"})
            if rows is not None:
                blocks = fold_shard(storage.chunks, shard, image.settings)
                assert rows == dict(record for _, block in blocks for record in block.records())


SHARD = ShardFiles("0", "default", 0, ("1.delta", "2.snapshot", "3.delta", "4.delta"))
FILES = {
    "1.delta": [StateRecord(b"old", b"12345678")],
    "2.snapshot": [StateRecord(b"one", b"12345678"), StateRecord(b"two", b"12345678")],
    "3.delta": [StateRecord(b"one", None), StateRecord(b"three", b"12345678more")],
    "4.delta": [StateRecord(b"two", b"abcdefgh")],
}


class Files:
    """Handed out in pieces; counts how much of each was."""

    def __init__(self) -> None:
        self.contents = {path: b"".join(encode_delta(records)) for path, records in FILES.items()}
        self.read: Counter[str] = Counter()

    def __call__(self, path: str) -> Iterator[bytes]:
        content = self.contents[path]
        for start in range(0, len(content), 16):
            self.read[path] += len(content[start : start + 16])
            yield content[start : start + 16]

    def size(self, *paths: str) -> int:
        return sum(len(self.contents[path]) for path in paths)


def test_what_counts_is_the_last_snapshot_and_what_came_behind_it() -> None:
    files = Files()
    assert few_rows(Begun(files), SHARD, {}) == {b"two": b"abcdefgh", b"three": b"12345678"}
    assert files.read == {path: len(files.contents[path]) for path in SHARD.files[1:]}


def test_a_shard_of_more_is_left_to_the_columns_and_its_beginning_is_not_read_again() -> None:
    files = Files()
    begun = Begun(files, files.size("2.snapshot", "3.delta", "4.delta") - 1)
    assert few_rows(begun, SHARD, {}) is None
    assert sum(files.read.values()) <= begun.bytes_max + 16
    for _ in range(2):
        found = [record for _, block in fold_shard(begun, SHARD, {}) for record in block.records()]
        assert dict(found) == {b"two": b"abcdefgh", b"three": b"12345678"}
        assert files.read == {path: len(files.contents[path]) for path in SHARD.files[1:]}
        files.read.clear()


def test_little_that_decompresses_to_much_is_left_to_the_columns() -> None:
    files = Files()
    files.contents["4.delta"] = b"".join(
        encode_delta([StateRecord(b"two", bytes(2 * DECODED_BYTES))])
    )
    begun = Begun(files)
    assert len(files.contents["4.delta"]) < BYTES and few_rows(begun, SHARD, {}) is None
    found = dict(record for _, block in fold_shard(begun, SHARD, {}) for record in block.records())
    assert found == {b"two": bytes(2 * DECODED_BYTES), b"three": b"12345678"}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("size", [8, 400])
def test_a_compacted_shard_has_the_same_entries_whichever_way_it_was_read(
    checked: bool, size: int
) -> None:
    """On both sides of how much is little."""
    dice = random.Random(size)
    rows = [StateRecord(f"key {number:04}".encode(), dice.randbytes(size)) for number in range(100)]
    gone = [StateRecord(row.key, None) for row in rows[::3]]
    changes = [list(map(with_row_checksum, one)) if checked else one for one in (rows, gone)]
    contents = [b"".join(encode_delta(one)) for one in changes]
    assert (sum(map(len, contents)) > BYTES) == (size == 400)
    conf = {ROW_CHECKSUM: "true"} if checked else {}
    plain = {
        "operator": "0",
        "store": "default",
        "sources": [[0, ["1.delta", "2.delta"]]],
        "targets": [0],
    }
    options = {
        "pieces": [plain],
        "settings": conf,
        "provider": HDFS,
        "codec": "lz4",
        "checksums": checked,
    }
    (made,) = rewrite_state(options, [lambda one=one: iter((one,)) for one in contents])  # type: ignore[misc]
    for _ in range(2):
        written = list(decode_snapshot(made()))
        bare = dict(
            record[:2] for record in (map(without_row_checksum, written) if checked else written)
        )
        assert bare == {
            row.key: row.value for row in rows if row.key not in {one.key for one in gone}
        }


@pytest.mark.parametrize("settings", [{}, {ROW_CHECKSUM: "true"}])
def test_a_damaged_file_is_told_with_its_name_by_both_ways(settings: dict[str, str]) -> None:
    """Also where rows have checksums, which would not fit either: the file comes first."""
    files = Files()
    files.contents["2.snapshot"] = b"".join(
        encode_delta(map(with_row_checksum, FILES["2.snapshot"]))
    )
    files.contents["3.delta"] = files.contents["3.delta"][:-5]
    with pytest.raises(FormatError) as few:
        few_rows(Begun(files), SHARD, settings)
    with pytest.raises(FormatError) as many:
        list(fold_shard(files, SHARD, settings))
    assert few.value.fact == many.value.fact and few.value.where == many.value.where
    assert few.value.where["path"] == "3.delta"
