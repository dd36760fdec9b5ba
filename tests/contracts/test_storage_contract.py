"""What every storage promises, asked of every member: the sentences of
`stateshift.storage.protocol`, one by one.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stateshift.errors import AlreadyThere, MissingFile, StorageError
from stateshift.storage.protocol import CHUNK, Content, Storage
from stateshift.survey import Owned
from tests.contracts.members import MEMBERS, Reopen

pytestmark = pytest.mark.every_case

NAMES = [
    "plain",
    "two words",
    " leading and trailing ",
    "per%20cent",
    "100%",
    "hash#tag",
    "question?mark=1&x",
    "colon:and;semi",
    "star*[a-z]{1}",
    "quote'\"`$HOME~",
    "back\\slash",
    "a::b",
    "~",
    "-rf",
    ".hidden",
    ".0.delta.crc",
    "…",
    "ünïcödé",
    "名前",
    "🦀",
    "e\u0301 is not \u00e9",
    "newline\nin it",
    "tab\tin it",
    "n" * 240,
]


@pytest.fixture(params=MEMBERS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    return MEMBERS[request.param](tmp_path)


@pytest.fixture
def storage(reopen: Reopen) -> Storage:
    return reopen()


def of(*chunks: bytes) -> Content:
    return lambda: iter(chunks)


def paths(storage: Storage, under: str = "") -> list[str]:
    return sorted(info.path for info in storage.list(under))


# -- reading and writing


def test_what_was_written_is_read_listed_and_told_the_size_of(storage: Storage) -> None:
    assert storage.write("a/b", of(b"one", b"two")) == 6
    assert storage.read("a/b") == b"onetwo"
    assert b"".join(storage.chunks("a/b")) == b"onetwo"
    [listed] = storage.list()
    told = storage.stat("a/b")
    assert told is not None
    assert (listed.path, listed.size) == (told.path, told.size) == ("a/b", 6)
    assert abs(listed.modified - told.modified) < 0.001


def test_another_storage_on_the_same_location_sees_it(storage: Storage, reopen: Reopen) -> None:
    storage.write("a/b", of(b"x"))
    assert reopen().read("a/b") == b"x"
    assert reopen().location == storage.location


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    assert storage.write("empty", of()) == 0
    assert storage.write("empty too", of(b"", b"")) == 0
    assert storage.read("empty") == storage.read("empty too") == b""
    assert list(storage.chunks("empty")) == []
    assert sorted((i.path, i.size) for i in storage.list()) == [("empty", 0), ("empty too", 0)]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_literally(storage: Storage, name: str) -> None:
    path = f"{name}/{name}"
    storage.write(path, of(name.encode()))
    storage.create(f"{name}/lock", b"")
    assert storage.read(path) == name.encode()
    assert storage.stat(path) is not None
    assert paths(storage) == sorted([path, f"{name}/lock"])
    assert paths(storage, name) == sorted([path, f"{name}/lock"])
    storage.move(path, f"moved {name[:200]}")
    assert paths(storage) == sorted([f"moved {name[:200]}", f"{name}/lock"])
    storage.remove(f"moved {name[:200]}")
    storage.remove(f"{name}/lock")
    assert paths(storage) == []


def test_names_that_differ_only_in_special_characters_are_different_files(storage: Storage) -> None:
    for name in NAMES:
        storage.write(f"d/{name}", of(name.encode()))
    assert {path: storage.read(path) for path in paths(storage)} == {
        f"d/{n}": n.encode() for n in NAMES
    }


def test_deep_paths_work(storage: Storage) -> None:
    path = "/".join(f"{level:030d}" for level in range(60))
    storage.write(path, of(b"deep"))
    assert paths(storage) == [path]
    assert storage.read(path) == b"deep"
    storage.prune()
    assert storage.read(path) == b"deep"


def test_a_write_replaces_what_was_there(storage: Storage) -> None:
    storage.write("a", of(b"old and longer"))
    storage.write("a", of(b"new"))
    assert storage.read("a") == b"new"
    assert paths(storage) == ["a"]


def test_chunks_start_at_an_offset_and_are_bounded(storage: Storage) -> None:
    content = bytes(range(256)) * (CHUNK // 128)  # two chunks' worth
    storage.write("a", of(content[:1000], content[1000:], b"tail"))
    pieces = list(storage.chunks("a", 100))
    assert b"".join(pieces) == content[100:] + b"tail"
    assert max(map(len, pieces)) <= CHUNK
    assert b"".join(storage.chunks("a", CHUNK + 7)) == content[CHUNK + 7 :] + b"tail"
    assert list(storage.chunks("a", len(content) + 4)) == []
    assert list(storage.chunks("a", len(content) + 999)) == []


def test_reading_is_bounded_where_asked(storage: Storage) -> None:
    storage.write("a", of(b"12345"))
    assert storage.read("a", 5) == b"12345"
    with pytest.raises(StorageError, match="5 bytes"):
        storage.read("a", 4)


def test_times_are_kept_where_the_traits_say_so(storage: Storage) -> None:
    storage.write("a", of(b"x"), modified=1234567890.5)
    told = storage.stat("a")
    assert told is not None
    assert (told.modified == 1234567890.5) == storage.traits.keeps_times


def test_a_file_keeps_its_stamp_until_it_is_written_anew(storage: Storage, reopen: Reopen) -> None:
    """Also with the same size: what is recognised by its stamp is not read again."""
    stamps = []
    for content in (b"one", b"two"):
        storage.write("a/b", of(content))
        told = storage.stat("a/b")
        assert told is not None
        listed = next(iter(reopen().list("a")))
        assert listed.stamp == told.stamp
        stamps.append(told.stamp)
    assert stamps[0] != stamps[1] or stamps == ["", ""]
    storage.sync()
    again = reopen().stat("a/b")
    assert again is not None and again.stamp == stamps[1]


def test_the_empty_path_is_the_location_itself(storage: Storage) -> None:
    assert storage.stat("") is None
    storage.write("a", of(b"x"))
    assert storage.stat("") is None
    with pytest.raises(MissingFile):
        storage.read("")


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a", "a//b", "a/", "./a", "a\0b"])
def test_a_path_never_leads_out_of_the_location(storage: Storage, path: str) -> None:
    with pytest.raises(StorageError):
        storage.write(path, of(b"x"))
    with pytest.raises(StorageError):
        storage.read(path)
    assert paths(storage) == []


# -- what is not there


def test_what_is_not_there_is_missing_empty_or_none(storage: Storage) -> None:
    for _ in range(2):
        assert list(storage.list()) == []
        assert list(storage.list("no/where")) == []
        assert storage.stat("no/where") is None
        for read in (storage.read, lambda p: list(storage.chunks(p))):
            with pytest.raises(MissingFile) as raised:
                read("no/where")
            assert raised.value.hint is not None
        storage.remove("no/where")
        storage.prune()
        storage.prune("no/where")
        storage.write("somewhere", of(b""))
        storage.remove("somewhere")


def test_a_directory_is_not_a_file(storage: Storage) -> None:
    storage.write("d/a", of(b"x"))
    assert storage.stat("d") is None
    with pytest.raises(MissingFile):
        storage.read("d")
    with pytest.raises(StorageError):
        storage.write("d", of(b"y"))
    with pytest.raises(StorageError):
        storage.write("d/a/b", of(b"y"))
    assert storage.stat("d/a/b") is None
    assert list(storage.list("d/a/b")) == []
    assert list(storage.list("d/a")) == []
    assert {path: storage.read(path) for path in paths(storage)} == {"d/a": b"x"}


def test_listing_below_a_name_leaves_out_longer_names(storage: Storage) -> None:
    for path in ("d/a", "d2/a", "d.x"):
        storage.write(path, of(b""))
    assert paths(storage, "d") == ["d/a"]
    assert paths(storage, "d2") == ["d2/a"]


# -- whole or none


class ContentFailed(Exception):
    pass


def failing(*chunks: bytes, error: type[BaseException] = ContentFailed) -> Content:
    def content() -> Iterator[bytes]:
        yield from chunks
        raise error

    return content


@pytest.mark.parametrize("error", [ContentFailed, KeyboardInterrupt])
@pytest.mark.parametrize("size", [0, 10, 3 * CHUNK])
def test_a_write_whose_content_fails_leaves_nothing(
    storage: Storage, reopen: Reopen, size: int, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        storage.write("d/a", failing(b"x" * size, error=error))
    assert storage.stat("d/a") is None
    assert list(reopen().list()) == []
    storage.prune()
    storage.write("d/a", of(b"fine"))
    assert storage.read("d/a") == b"fine"


@pytest.mark.parametrize("size", [0, 10, 3 * CHUNK])
def test_a_write_whose_content_fails_leaves_the_old_file(
    storage: Storage, reopen: Reopen, size: int
) -> None:
    storage.write("d/a", of(b"old"))
    with pytest.raises(ContentFailed):
        storage.write("d/a", failing(b"x" * size))
    assert reopen().read("d/a") == b"old"
    assert paths(reopen()) == ["d/a"]


def test_a_file_is_not_seen_before_it_is_whole(storage: Storage, reopen: Reopen) -> None:
    other, seen = reopen(), []

    def content() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * CHUNK
            seen.append((other.stat("d/a"), list(other.list())))

    storage.write("d/a", content)
    assert seen == [(None, [])] * 3
    assert sum(map(len, other.chunks("d/a"))) == 3 * CHUNK


def test_a_write_may_write_to_the_same_storage_in_its_content(storage: Storage) -> None:
    def content() -> Iterator[bytes]:
        storage.write("d/b", of(b"inner"))
        storage.write("d/a", of(b"same path, done first"))
        yield b"outer"

    storage.write("d/a", content)
    assert {path: storage.read(path) for path in paths(storage)} == {
        "d/a": b"outer",
        "d/b": b"inner",
    }


def test_a_file_can_be_copied_within_one_storage(storage: Storage) -> None:
    content = b"0123456789" * CHUNK
    storage.write("a", of(content[:CHUNK], content[CHUNK:]))
    storage.write("b", lambda: storage.chunks("a"))
    assert storage.read("b") == content


# -- create, move, remove, prune


def test_create_makes_a_file_once(storage: Storage, reopen: Reopen) -> None:
    storage.create("d/lock", b"first")
    for other in (storage, reopen()):
        with pytest.raises(AlreadyThere):
            other.create("d/lock", b"second")
    assert reopen().read("d/lock") == b"first"
    assert paths(storage) == ["d/lock"]


def test_create_does_not_replace_what_was_written(storage: Storage) -> None:
    storage.write("a", of(b"written"))
    with pytest.raises(AlreadyThere):
        storage.create("a", b"created")
    assert storage.read("a") == b"written"


def test_exactly_one_thread_creates(reopen: Reopen) -> None:
    storages = [reopen() for _ in range(8)]
    for round_ in range(10):
        start = threading.Barrier(len(storages))
        path = f"locks/{round_}"

        def attempt(number: int, path: str = path, start: threading.Barrier = start) -> int | None:
            start.wait()
            try:
                storages[number].create(path, b"%d" % number)
                return number
            except AlreadyThere:
                return None

        with ThreadPoolExecutor(len(storages)) as pool:
            won = [n for n in pool.map(attempt, range(len(storages))) if n is not None]
        assert len(won) == 1
        assert storages[0].read(path) == b"%d" % won[0]
    assert len(paths(storages[0])) == 10


def test_a_move_takes_the_file_with_it(storage: Storage, reopen: Reopen) -> None:
    storage.write("a/b", of(b"x"))
    storage.move("a/b", "c/d/e")
    assert paths(reopen()) == ["c/d/e"]
    assert reopen().read("c/d/e") == b"x"


def test_a_move_replaces_nothing(storage: Storage) -> None:
    storage.write("a", of(b"one"))
    storage.write("b", of(b"two"))
    for target in ("b", "a"):
        with pytest.raises(AlreadyThere):
            storage.move("a", target)
    assert (storage.read("a"), storage.read("b")) == (b"one", b"two")


def test_a_move_of_what_is_not_there_says_so(storage: Storage) -> None:
    with pytest.raises(MissingFile):
        storage.move("a", "b")
    storage.write("b", of(b""))
    with pytest.raises(MissingFile):
        storage.move("a", "b")


def test_exactly_one_of_two_moves_onto_one_path_wins(reopen: Reopen) -> None:
    one, two = reopen(), reopen()
    for round_ in range(10):
        one.write(f"from/{round_}/a", of(b"a"))
        two.write(f"from/{round_}/b", of(b"b"))
        start = threading.Barrier(2)

        def attempt(
            storage: Storage, name: str, n: int = round_, start: threading.Barrier = start
        ) -> str:
            start.wait()
            try:
                storage.move(f"from/{n}/{name}", f"to/{n}")
                return name
            except AlreadyThere:
                return ""

        with ThreadPoolExecutor(2) as pool:
            won = "".join(pool.map(attempt, (one, two), "ab"))
        assert len(won) == 1
        assert one.read(f"to/{round_}") == won.encode()
        assert paths(one, f"from/{round_}") == [f"from/{round_}/{'b' if won == 'a' else 'a'}"]


def test_remove_removes_one_file(storage: Storage, reopen: Reopen) -> None:
    storage.write("d/a", of(b"x"))
    storage.write("d/b", of(b"y"))
    storage.remove("d/a")
    storage.remove("d/a")
    assert paths(reopen()) == ["d/b"]


def test_prune_leaves_every_file(storage: Storage, reopen: Reopen) -> None:
    for path in ("a/b/c", "a/d", "e/f/g/h"):
        storage.write(path, of(b"x"))
    storage.remove("e/f/g/h")
    storage.prune()
    assert paths(reopen()) == ["a/b/c", "a/d"]
    storage.write("e/f/g/h", of(b"again"))
    assert storage.read("e/f/g/h") == b"again"


def test_a_pruned_directory_can_become_a_file(storage: Storage) -> None:
    storage.write("a/b/c", of(b"x"))
    storage.remove("a/b/c")
    storage.prune("a/b")
    storage.write("a/b", of(b"file"))
    assert storage.read("a/b") == b"file"


def test_prune_below_a_path_leaves_the_rest_alone(storage: Storage) -> None:
    for path in ("a/b", "c/d"):
        storage.write(path, of(b"x"))
        storage.remove(path)
    storage.prune("a")
    storage.write("a", of(b"a file now"))
    assert paths(storage) == ["a"]


def test_sync_may_be_called_at_any_time(storage: Storage) -> None:
    storage.sync()
    storage.write("a/b", of(b"x"))
    storage.sync()
    storage.remove("a/b")
    storage.prune()
    storage.sync()
    assert paths(storage) == []


# -- many threads, big files


def test_threads_write_through_one_storage(storage: Storage, reopen: Reopen) -> None:
    def work(number: int) -> None:
        for i in range(25):
            path = f"state/{i % 5}/{number}-{i}"
            storage.write(path, of(path.encode(), b"!" * i))
            assert storage.read(path) == path.encode() + b"!" * i
        storage.sync()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    other = reopen()
    assert len(paths(other)) == 200
    assert all(other.read(path).startswith(path.encode()) for path in paths(other))


def test_threads_that_write_one_path_leave_one_of_the_contents(
    storage: Storage, reopen: Reopen
) -> None:
    def work(number: int) -> None:
        for _ in range(10):
            storage.write("d/a", of(*[b"%d" % number * 1000] * 5))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert reopen().read("d/a") in [b"%d" % number * 5000 for number in range(4)]
    assert paths(reopen()) == ["d/a"]


def test_threads_read_one_file_at_once(storage: Storage) -> None:
    content = bytes(range(256)) * (CHUNK // 64)
    storage.write("a", of(content))
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda _: b"".join(storage.chunks("a")), range(8)))
    assert all(one == content for one in read)


@pytest.mark.long
@pytest.mark.parametrize("name", ["local", "fsspec-local", "retrying-local", "throttled-local"])
def test_a_big_file_is_copied_in_bounded_memory(name: str, tmp_path: Path) -> None:
    storage = MEMBERS[name](tmp_path)()
    block, blocks = b"\x5a" * (1 << 20), 256
    tracemalloc.start()
    try:
        assert storage.write("big", lambda: (block for _ in range(blocks))) == blocks << 20
        tracemalloc.reset_peak()
        assert storage.write("copy", lambda: storage.chunks("big")) == blocks << 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    told = storage.stat("copy")
    assert told is not None
    assert told.size == blocks << 20


Operation = Callable[[Storage], object]
FAILING: dict[str, Operation] = {
    "a read of what is gone": lambda s: s.read("gone"),
    "a move of what is gone": lambda s: s.move("gone", "b"),
    "a read of what is too large": lambda s: s.read("d/a", 0),
    "a write where a directory is": lambda s: s.write("d", of(b"x")),
    "a write below a file": lambda s: s.write("d/a/b", of(b"x")),
}


@pytest.mark.parametrize("operation", FAILING.values(), ids=FAILING)
def test_every_error_tells_the_location_and_a_way_out(
    storage: Storage, operation: Operation
) -> None:
    storage.write("d/a", of(b"x"))
    with pytest.raises(StorageError) as raised:
        operation(storage)
    assert raised.value.hint
    assert raised.value.location is not None
    assert raised.value.location.startswith(storage.location)


# -- what is asked beforehand


def test_asking_for_room_and_permission_writes_nothing_where_nothing_is_yet(
    storage: Storage,
) -> None:
    room = storage.room()
    assert room.bytes_free is None or room.bytes_free > 0
    assert room.copies >= 1
    assert storage.writable() is not False, "the members are opened where they may write"
    assert storage.writable("deep/down") is not False
    assert list(storage.list()) == []
    storage.prune()
    storage.write("a/b", of(b"x"))
    assert storage.writable("a") is not False
    assert storage.writable() is not False


def test_what_cannot_be_asked_is_told_as_that_and_what_is_told_fits_the_traits(
    storage: Storage,
) -> None:
    room = storage.room()
    assert (room.bytes_free is None) or room.limit
    assert (room.files_free is None) or room.files_limit


# -- whose files are, and what their storage knows of them


def test_what_is_given_to_somebody_is_theirs_and_what_is_left_out_stays(storage: Storage) -> None:
    storage.write("a/b", of(b"x"))
    if not storage.traits.owners:
        assert list(storage.owners()) == []
        with pytest.raises(StorageError):
            storage.own(Owned("a/b", "somebody", None, None))
        return
    before = {owned.path: owned for owned in storage.owners()}
    assert before.keys() == {"", "a", "a/b"}
    storage.own(Owned("a/b", None, None, 0o640))
    storage.own(Owned("a", before["a"].owner, before["a"].group, 0o750))
    after = {owned.path: owned for owned in storage.owners()}
    assert after == {
        "": before[""],
        "a": before["a"]._replace(mode=0o750),
        "a/b": before["a/b"]._replace(mode=0o640),
    }
    assert storage.read("a/b") == b"x"


def test_a_place_where_nothing_is_belongs_to_nobody(storage: Storage) -> None:
    assert list(storage.owners()) == []


def test_equal_checksums_mean_equal_bytes(storage: Storage) -> None:
    for path, content in (("a", b"x" * 1000), ("b", b"x" * 1000), ("c", b"y" * 1000)):
        storage.write(path, of(content))
    one, same, other = map(storage.checksum, "abc")
    assert one == same
    assert one is None or one != other
