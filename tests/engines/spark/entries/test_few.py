"""Little shards folded record by record: what the columns come to, damaged files told alike, and nothing read twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from stateshift.engines.spark.entries.few import Begun, few_rows
from stateshift.engines.spark.entries.folding import folded
from stateshift.engines.spark.survey import survey
from stateshift.errors import FormatError
from stateshift.formats.spark.state_files import Record, encode_delta
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
                blocks = folded(storage.chunks, shard, image.settings)
                assert rows == dict(record for _, block in blocks for record in block.records())


SHARD = ShardFiles("0", "default", 0, ("1.delta", "2.snapshot", "3.delta", "4.delta"))
FILES = {
    "1.delta": [Record(b"old", b"12345678")],
    "2.snapshot": [Record(b"one", b"12345678"), Record(b"two", b"12345678")],
    "3.delta": [Record(b"one", None), Record(b"three", b"12345678more")],
    "4.delta": [Record(b"two", b"abcdefgh")],
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
        found = [record for _, block in folded(begun, SHARD, {}) for record in block.records()]
        assert dict(found) == {b"two": b"abcdefgh", b"three": b"12345678"}
        assert files.read == {path: len(files.contents[path]) for path in SHARD.files[1:]}
        files.read.clear()


def test_a_damaged_file_is_told_with_its_name_by_both_ways() -> None:
    files = Files()
    files.contents["3.delta"] = files.contents["3.delta"][:-5]
    with pytest.raises(FormatError) as few:
        few_rows(Begun(files), SHARD, {})
    with pytest.raises(FormatError) as many:
        list(folded(files, SHARD, {}))
    assert few.value.fact == many.value.fact and few.value.where == many.value.where
    assert few.value.where["path"] == "3.delta"
