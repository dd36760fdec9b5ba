"""A damaged RocksDB or ForSt is refused by a deep look, whatever was done to it; a whole one is
not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from stateshift.engines.flink.entries.databases import checked_databases, handles_below
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, StateshiftError
from stateshift.formats.flink.keyed_handles import Incremental
from stateshift.formats.flink.stream_handles import Segment, StreamHandle, files_of
from stateshift.specification import parse_spec
from stateshift.survey import Finding
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.ground import Ground

pytestmark = pytest.mark.row("W-10")

NATIVE = tuple(
    name
    for name in golden.NAMES
    if name.split("/")[1]
    in (
        "count-native-incremental",
        "count-checkpoint-incremental",
        "count-forst-native",
        "count-forst-checkpoint",
        "count-merging-incremental",
        "kinds-native-incremental",
    )
)


class Place:
    """An image on a disk in memory, and the files of its databases."""

    def __init__(self, name: str) -> None:
        self.disk = MemoryDisk()
        self.location = golden.write(self.disk, name)
        self.storage, survey = golden.looked_at(self.disk, self.location)
        self.image = survey.images[0]
        self.streams = Streams(self.storage.chunks, places_of(self.image))

    def handles(self) -> Iterator[tuple[int, Incremental]]:
        for operator in metadata_of(self.image).operators:
            for subtask in operator.subtasks or ():
                for handle in handles_below(subtask.managed_keyed, Incremental):
                    yield operator.max_parallelism, handle

    def files(self, *starts: str) -> list[tuple[str, StreamHandle]]:
        """Those whose names in RocksDB begin or end so, each once."""
        found: dict[StreamHandle, str] = {}
        for _, handle in self.handles():
            for name, stream in (*handle.shared, *handle.private):
                if (
                    stream is not None
                    and list(files_of(stream))
                    and (name.startswith(starts) or name.endswith(starts))
                ):
                    found.setdefault(stream, name)
        return sorted(((name, stream) for stream, name in found.items()), key=repr)

    def content(self, stream: StreamHandle) -> bytes:
        return self.streams.head(stream, stream.size)

    def put(self, stream: StreamHandle, content: bytes) -> None:
        """Write a stream's bytes over those that are there."""
        (file,) = files_of(stream)
        path = places_of(self.image).path_of(file)
        assert path is not None
        start = file.start if isinstance(file, Segment) else 0
        whole = self.storage.read(path, 1 << 26)
        put(self.storage, path, whole[:start] + content + whole[start + len(content) :])

    def refusals(self) -> list[Finding]:
        findings = golden.judged(self.storage, self.image).findings
        return [finding for finding in findings if finding.level == "refuse"]

    def warnings(self) -> list[Finding]:
        findings = golden.judged(self.storage, self.image).findings
        return [finding for finding in findings if finding.level == "warn"]


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", NATIVE)
def test_tables_of_nothing_but_zeros_are_refused(name: str) -> None:
    place = Place(name)
    assert place.refusals() == []
    for _, stream in place.files(".sst"):
        place.put(stream, bytes(stream.size))
    refusals = place.refusals()
    assert refusals and all(".sst" in one.message and one.path for one in refusals)


@pytest.mark.long
@pytest.mark.sample(24)
@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("kind", [".sst", "MANIFEST-", "CURRENT"])
def test_a_flipped_bit_is_refused(name: str, kind: str) -> None:
    place, random = Place(name), Random(7)
    files = place.files(kind)
    assert files
    for own, stream in [random.choice(files) for _ in range(40)]:
        content = place.content(stream)
        bit = random.randrange(8 * len(content))
        if kind == ".sst" and is_padding(content, bit // 8):
            continue
        place.put(stream, flipped(content, bit))
        assert place.refusals(), f"{own}: bit {bit}"
        place.put(stream, content)
    assert place.refusals() == []


def is_padding(content: bytes, offset: int) -> bool:
    """Whether a byte is between the handles of a footer and its version: nobody reads it."""
    footer = len(content) - 53
    return footer + 5 <= offset < footer + 41


@pytest.mark.parametrize("name", NATIVE)
def test_two_tables_exchanged_are_refused(name: str) -> None:
    place = Place(name)
    by_size: dict[int, StreamHandle] = {}
    exchanged = 0
    for _, stream in place.files(".sst"):
        other = by_size.setdefault(stream.size, stream)
        one, two = place.content(stream), place.content(other)
        if one != two:
            place.put(stream, two)
            place.put(other, one)
            assert place.refusals()
            place.put(stream, one)
            place.put(other, two)
            exchanged += 1
    assert place.refusals() == []


@pytest.mark.parametrize("name", [name for name in NATIVE if "incremental" in name])
def test_a_database_in_the_place_of_another_is_refused(name: str) -> None:
    """Every file of one subtask under the handle of another: whole, but of keys that nobody
    looks for there.
    """
    place = Place(name)
    operators = metadata_of(place.image).operators
    for operator in operators:
        subtasks = [s for s in operator.subtasks or () if isinstance(s.managed_keyed, Incremental)]
        if len(subtasks) != 2:
            continue
        one, two = (s.managed_keyed for s in subtasks)
        assert isinstance(one, Incremental) and isinstance(two, Incremental)
        crossed = (
            replace(subtasks[0], managed_keyed=replace(two, first=one.first, count=one.count)),
            replace(subtasks[1], managed_keyed=replace(one, first=two.first, count=two.count)),
        )
        found = list(checked_databases(replace(operator, subtasks=crossed), place.streams))
        assert [f.level for f in found] == ["refuse", "refuse"]
        assert all("outside of its key groups" in f.message for f in found)


def test_keys_in_groups_that_are_not_their_own_are_refused() -> None:
    """As where only the max parallelism was changed."""
    place = Place("flink-2.3.0/count-native-incremental")
    operator = next(
        o
        for o in metadata_of(place.image).operators
        if any(s.managed_keyed for s in o.subtasks or ())
    )
    found = list(checked_databases(replace(operator, max_parallelism=64), place.streams))
    assert found and all("other key groups" in one.message for one in found)


@pytest.mark.parametrize("change", ["missing", "foreign", "renamed"])
def test_tables_and_manifest_have_to_name_the_same(change: str) -> None:
    place = Place("flink-2.3.0/kinds-native-incremental")
    for operator in metadata_of(place.image).operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            if not isinstance(handle, Incremental):
                continue
            named = handle.shared or handle.private
            changed = {
                "missing": named[1:],
                "foreign": (*named, ("999999.sst", named[0][1])),
                "renamed": (("999999.sst", named[0][1]), *named[1:]),
            }[change]
            crossed = replace(handle, shared=changed)
            damaged = replace(operator, subtasks=(replace(subtask, managed_keyed=crossed),))
            (found,) = checked_databases(damaged, place.streams)
            assert found.level == "refuse" and ".sst" in found.message


def test_states_have_to_be_the_column_families() -> None:
    place = Place("flink-2.3.0/kinds-native-incremental")
    having = [
        o
        for o in metadata_of(place.image).operators
        if any(s.managed_keyed for s in o.subtasks or ())
    ]
    one, two = having[:2]
    own, foreign = (o.subtasks[0] for o in (one, two) if o.subtasks)
    assert isinstance(own.managed_keyed, Incremental) and isinstance(
        foreign.managed_keyed, Incremental
    )
    crossed = replace(
        own, managed_keyed=replace(own.managed_keyed, meta=foreign.managed_keyed.meta)
    )
    (found,) = checked_databases(replace(one, subtasks=(crossed,)), place.streams)
    assert found.level == "refuse" and "column family" in found.message


def test_a_damaged_options_file_is_a_warning_since_rocksdb_opens_without_it() -> None:
    place = Place("flink-2.3.0/count-native-incremental")
    for _, stream in place.files("OPTIONS-"):
        place.put(stream, bytes(stream.size))
    assert place.refusals() == []
    assert place.warnings() and all("OPTIONS-" in one.message for one in place.warnings())


def test_a_warning_does_not_keep_an_image_from_restarting() -> None:
    place = Place("flink-2.3.0/count-native-incremental")
    for _, stream in place.files("OPTIONS-"):
        place.put(stream, bytes(stream.size))
    assert golden.judged(place.storage, place.image).epochs == place.image.epochs
    for _, stream in place.files("CURRENT"):
        place.put(stream, bytes(stream.size))
    assert golden.judged(place.storage, place.image).epochs == ()


@pytest.mark.parametrize("kind", [".sst", "MANIFEST-", "CURRENT"])
def test_a_run_does_not_publish_a_damaged_database(tmp_path: Path, kind: str) -> None:
    """Nothing but the files' bytes is compared where they are copied as they are: checksums are
    looked at besides.
    """
    ground = Ground(tmp_path)
    source = golden.write(ground.disk, "flink-2.3.0/count-native-incremental")
    storage, survey = golden.looked_at(ground.disk, source)
    place = Place("flink-2.3.0/count-native-incremental")
    name, stream = place.files(kind)[0]
    place.disk, place.storage, place.image = ground.disk, storage, survey.images[0]
    content = place.content(stream)
    place.put(stream, flipped(content, 8 * (len(content) // 2)))
    plain = {
        "name": "orders",
        "existing_savepoint_paths": [source],
        "new_savepoint_path": "file:///there/savepoint",
    }
    spec = parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [plain]}))
    with pytest.raises(StateshiftError, match=name if kind != "CURRENT" else "CURRENT"):
        ground.apply(spec)
    assert "_metadata" not in ground.held("file:///there/savepoint")


def test_tables_of_a_kind_that_is_not_read_are_named_with_their_size_and_do_not_say_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stateshift.formats.rocksdb import table

    place = Place("flink-2.3.0/count-native-incremental")
    monkeypatch.setattr(table, "NEWER", 5)
    assert place.refusals() == []
    assert place.warnings() and all(
        "bytes" in f.message and ".sst" in f.message for f in place.warnings()
    )


@pytest.mark.parametrize(
    "name", ["x.sst", "9" * 5000 + ".sst", "٣.sst", ".sst", "-1.sst", "../000014.sst"]
)
def test_a_name_that_no_table_has_is_refused(name: str) -> None:
    place = Place("flink-2.3.0/count-native-incremental")
    for operator in metadata_of(place.image).operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            if isinstance(handle, Incremental):
                crossed = replace(handle, shared=((name, handle.shared[0][1]), *handle.shared[1:]))
                damaged = replace(operator, subtasks=(replace(subtask, managed_keyed=crossed),))
                (found,) = checked_databases(damaged, place.streams)
                assert found.level == "refuse"


def test_a_length_that_a_file_claims_takes_no_memory() -> None:
    place = Place("flink-2.3.0/count-native-incremental")
    _, stream = place.files(".sst")[0]
    with pytest.raises(FormatError, match="at once"):
        place.streams.reader(stream)(0, 1 << 40)
