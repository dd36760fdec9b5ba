"""What entries add up to, by hashes of the last writes: the same as of the folded entries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.check.snapshots import BYTES_MAX, Tally, tally_of
from stateshift.engines.spark.entries.fold import fold_shard, writes_in_time
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import block_of
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM
from stateshift.formats.spark.state_files import Changelog, StateRecord, encode_delta
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom
from tests.engines.spark.golden import NAMES, golden
from tests.support.encoders import encode_changelog
from tests.support.entries import reading


def tally_of_folded(read: ReadFrom, shard: ShardFiles, conf: dict[str, str]) -> Tally:
    tally = Tally()
    for store, block in fold_shard(read, shard, conf):
        tally.add(store, block)
    return tally


@pytest.mark.sample(140)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bytes_max", [BYTES_MAX, 3 * 17])
def test_golden_shards_add_up_to_what_their_entries_do(name: str, bytes_max: int) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        conf = dict(image.settings)
        for shard in image.shards:
            expected = tally_of_folded(storage.chunks, shard, conf)
            assert tally_of(storage.chunks, shard, conf, bytes_max) == expected


KEYS = st.sampled_from([b"", b"a", b"b", b"key", b"k" * 9, b"\0" * 8, b"\0" * 9])
# Rows are of whole words.
VALUES = st.sampled_from([b"", b"one-word", b"two words of it."])
WRITES = st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=40)


@settings(deadline=None)
@given(st.lists(WRITES, max_size=4), st.sampled_from((17, 7 * 17, 1000 * 17)))
def test_the_last_write_of_a_key_counts_in_memory_and_on_piles(
    files: list[list[tuple[bytes, bytes | None]]], bytes_max: int
) -> None:
    paths = [f"state/0/0/{number}.delta" for number in range(1, len(files) + 1)]
    contents = {
        path: b"".join(encode_delta([StateRecord(key, value) for key, value in writes]))
        for path, writes in zip(paths, files, strict=True)
    }
    shard = ShardFiles("0", "default", 0, tuple(paths))
    last = dict(entry for writes in files for entry in writes)
    expected = Tally()
    expected.add("default", block_of((k, v) for k, v in last.items() if v is not None))
    assert tally_of(reading(contents), shard, {}, bytes_max) == expected


def test_changelogs_that_are_not_enough_are_not_counted_as_if_they_were() -> None:
    """Their column families have no names, so what they merge is not known either."""
    record = StateRecord(b"\x01\x00key", b"value", merge=True)
    content = b"".join(encode_changelog(Changelog(2), [record]))
    path = "state/0/0/1.changelog"
    with pytest.raises(FormatError, match="column families"):
        tally_of(reading({path: content}), ShardFiles("0", "default", 0, (path,)), {})


def test_with_tables_or_rows_with_checksums_entries_are_folded() -> None:
    read = reading({})
    tables = ShardFiles("0", "default", 0, ("state/0/0/1.zip", "state/0/0/2.changelog"))
    assert writes_in_time(read, tables, {}) is None
    changelogs = ShardFiles("0", "default", 0, ("state/0/0/1.changelog",))
    assert writes_in_time(read, changelogs, {}) is not None
    assert writes_in_time(read, changelogs, {ROW_CHECKSUM: "true"}) is None
