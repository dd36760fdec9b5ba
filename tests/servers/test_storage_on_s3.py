"""The storage contract on two S3 servers that share nothing; and what S3 alone can do to a
storage.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.fsspec.storage import FsspecStorage
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import CHUNK, Storage
from tests.contracts import test_storage_contract as contract
from tests.contracts.members import Reopen
from tests.support import s3
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow]

# Every promise of the protocol; the fixtures below decide whose.
OF_DIRECTORIES = ("test_a_directory_is_not_a_file", "test_a_big_file_is_copied_in_bounded_memory")
PROMISES = {name: test for name, test in vars(contract).items() if name.startswith("test_")}
globals().update({name: test for name, test in PROMISES.items() if name not in OF_DIRECTORIES})
storage = contract.storage

# What one of the servers makes of a name that S3 takes.
NOT_OF = {s3.MOTO: ("newline\nin it",), s3.REAL: ("back\\slash",)}
OF_STORES = {name: does for name, does in contract.FAILING.items() if "write" not in name}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers:
        yield servers


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(s3.MOTO, marks=pytest.mark.slow, id="moto"),
        pytest.param(s3.REAL, id="real"),
    ],
)
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def environment(which: str, servers: Servers) -> Iterator[dict[str, str]]:
    with s3.exported(servers, which) as environment:
        yield environment


@pytest.fixture
def endpoint(environment: dict[str, str]) -> str:
    return environment["AWS_ENDPOINT_URL_S3"]


@pytest.fixture
def reopen(environment: dict[str, str]) -> Reopen:
    place = f"s3://{s3.BUCKET}/{uuid.uuid4().hex}/a b/place%20#?"
    return lambda: open_patiently(place)  # moto answers 500 where two write one object at once


# -- names


def test_names_are_taken_literally(environment: dict[str, str], which: str) -> None:
    for name in contract.NAMES:
        if name not in NOT_OF[which]:
            storage = open_patiently(f"s3://{s3.BUCKET}/{uuid.uuid4().hex}/a b/place%20#?")
            contract.test_names_are_taken_literally(storage, name)


def test_names_that_differ_only_in_special_characters_are_different_files(
    storage: Storage, which: str
) -> None:
    names = [name for name in contract.NAMES if name not in NOT_OF[which]]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.write(f"d/{name}", contract.of(name.encode())), names))
    assert {info.path: storage.read(info.path) for info in storage.list()} == {
        f"d/{n}": n.encode() for n in names
    }


def test_once_s3fs_has_shown_how_it_is_not_asked_any_more(
    environment: dict[str, str], which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one holds each request's signature, and the SHA-256 of what it brings, against
    its own.
    """
    storage = FsspecStorage.open(f"s3://{s3.BUCKET}/{uuid.uuid4().hex}/a b/place%20#?")
    names = {name: name.encode() for name in contract.NAMES if name not in NOT_OF[which]}
    storage.write("first", contract.of(b"1"))
    assert list(storage.chunks("first", size=1)) == [b"1"] and storage.stat("first") is not None

    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(f"asked by s3fs: {words} {more}")

    for method in ("pipe_file", "cat_file", "info"):
        monkeypatch.setattr(storage._fs, method, refuse)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.write(name, contract.of(names[name])), names))
        assert list(
            pool.map(lambda name: list(storage.chunks(name, size=len(names[name]))), names)
        ) == [[content] for content in names.values()]
        found = list(pool.map(storage.stat, names))
    monkeypatch.undo()
    listed = {(info.path, info.size, info.stamp) for info in storage.list() if info.path != "first"}
    assert {(info.path, info.size, info.stamp) for info in found if info is not None} == listed


def test_deep_paths_work(storage: Storage) -> None:
    """S3's keys have 1,024 bytes at most."""
    path = "/".join(f"{level:030d}" for level in range(30))
    storage.write(path, contract.of(b"deep"))
    storage.prune()
    assert contract.paths(storage) == [path]
    assert storage.read(path) == b"deep"


def test_a_key_that_is_too_long_is_told_as_that(storage: Storage, which: str) -> None:
    path = "/".join(["n" * 100] * 11)
    if which == s3.MOTO:  # which takes what S3 does not
        storage.write(path, contract.of(b"x"))
        assert storage.read(path) == b"x"
        return
    with pytest.raises(StorageError, match="a name is too long"):
        storage.write(path, contract.of(b"x"))


@pytest.mark.parametrize("name", ["a?versionId=1", "d?versionId=/a"])
def test_a_name_that_s3fs_would_cut_is_refused(storage: Storage, name: str) -> None:
    """It would take what stands before for the key, and write over another object."""
    storage.write("a", contract.of(b"kept"))
    operations: list[Callable[[], object]] = [
        lambda: storage.write(name, contract.of(b"x")),
        lambda: storage.read(name),
        lambda: storage.remove(name),
        lambda: storage.create(name, b"x"),
        lambda: storage.stat(name),
        lambda: storage.move("a", name),
    ]
    for operation in operations:
        with pytest.raises(StorageError, match="for a version") as raised:
            operation()
        assert raised.value.hint
    assert {info.path: storage.read(info.path) for info in storage.list()} == {"a": b"kept"}


def test_a_name_may_be_a_file_s_and_a_directory_s_and_both_are_whole(storage: Storage) -> None:
    written = {"d/a": b"1", "d": b"2", "d/a/b": b"3"}
    for path, content in written.items():
        storage.write(path, contract.of(content))
    assert {info.path: storage.read(info.path) for info in storage.list()} == written
    storage.remove("d")
    storage.move("d/a", "c")
    assert {info.path: storage.read(info.path) for info in storage.list()} == {
        "c": b"1",
        "d/a/b": b"3",
    }


@pytest.mark.parametrize("operation", OF_STORES.values(), ids=OF_STORES)
def test_every_error_tells_the_location_and_a_way_out(
    storage: Storage, operation: contract.Operation
) -> None:
    contract.test_every_error_tells_the_location_and_a_way_out(storage, operation)


def test_more_objects_than_s3_tells_at_once_are_all_listed(storage: Storage) -> None:
    names = {f"many/{number:04}" for number in range(1100)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.create(name, b""), names))
    assert {info.path for info in storage.list()} == names


# -- parts


def patterned(size: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in range(size // 8))


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(
    storage: Storage, endpoint: str, which: str
) -> None:
    content = patterned(11 * CHUNK)  # parts of 8 MiB
    pieces = [content[i : i + 1_000_000] for i in range(0, len(content), 1_000_000)]
    begun: list[list[str]] = []

    def told() -> Iterator[bytes]:
        for number, piece in enumerate(pieces):
            if number == 40:
                begun.append(s3.pending(endpoint))
            yield piece

    assert storage.write("large", told) == len(content)
    assert b"".join(storage.chunks("large")) == storage.read("large") == content
    assert [len(keys) for keys in begun] == [1]  # so that an empty list says something
    assert s3.pending(endpoint) == []


@pytest.mark.parametrize("size", [3 * CHUNK, 9 * CHUNK])
def test_parts_that_were_given_up_are_nowhere(storage: Storage, endpoint: str, size: int) -> None:
    with pytest.raises(contract.ContentFailed):
        storage.write("half", contract.failing(*[b"x" * CHUNK] * (size // CHUNK)))
    assert list(storage.list()) == []
    assert s3.pending(endpoint) == []


def test_the_parts_of_a_killed_process_are_no_object(
    storage: Storage, endpoint: str, environment: dict[str, str]
) -> None:
    """They remain with S3 (a lifecycle rule, AbortIncompleteMultipartUpload, removes them), and
    nothing lists them.
    """
    script = f"""
import sys, time
from stateshift.storage.opening import open_patiently
def content():
    for _ in range(9):
        yield b"x" * {CHUNK}
    print("half", flush=True)
    time.sleep(600)
open_patiently({storage.location!r}).write("half", content)
"""
    writer = s3.run(["-c", script], {**os.environ, **environment})
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        assert len(s3.pending(endpoint)) == 1
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    assert list(storage.list()) == []
    storage.write("half", contract.of(b"whole"))
    assert {info.path: storage.read(info.path) for info in storage.list()} == {"half": b"whole"}
    s3.give_up(endpoint)


# -- create and move


def test_of_two_processes_one_creates(storage: Storage, environment: dict[str, str]) -> None:
    """As two runs that fence one source, or a fence and the job's own next batch, would."""
    script = f"""
import os, sys, time
from stateshift.errors import AlreadyThere
from stateshift.storage.opening import open_storage
storage, won = open_storage({storage.location!r}), []
storage.stat("ready")
print("ready", flush=True)
begin = float(sys.stdin.readline())
for number in range(20):
    while time.time() < begin + number * 0.1:
        pass
    try:
        storage.create(f"offsets/{{number}}", str(os.getpid()).encode())
        won.append(number)
    except AlreadyThere:
        pass
print(os.getpid(), *won)
"""
    command = [sys.executable, "-c", script]
    racers = [
        subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    begin = f"{time.time() + 0.2}\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(begin)
        racer.stdin.flush()
    told = [racer.communicate(timeout=60)[0].split() for racer in racers]
    claimed = {int(number): pid for pid, *numbers in told for number in numbers}
    assert sorted(int(number) for _, *numbers in told for number in numbers) == list(range(20))
    assert {
        int(i.path.partition("/")[2]): storage.read(i.path).decode() for i in storage.list()
    } == claimed


def test_a_move_is_a_copy_on_the_servers_side_and_what_it_left_half_done_is_done_by_its_repeat(
    storage: Storage, reopen: Reopen
) -> None:
    content = patterned(5 * CHUNK)
    storage.write("a", contract.of(content))
    storage.write(
        "b", contract.of(content)
    )  # as when it was killed between the copy and the removal
    reopen().move("a", "b")
    assert contract.paths(storage) == ["b"]
    storage.write("a", contract.of(content[:-1] + b"\0"))
    with pytest.raises(AlreadyThere):
        storage.move("a", "b")
    assert contract.paths(storage) == ["a", "b"]
    storage.move("b", "c")
    assert storage.read("c") == content
    assert not storage.traits.renames
    assert storage.traits.exclusive


# -- how it is reached


def test_the_environment_says_whom_to_ask(environment: dict[str, str]) -> None:
    location = f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"
    open_patiently(location).write("a", contract.of(b"x"))
    told = [
        sys.executable,
        "-c",
        (
            "from stateshift.storage.opening import open_storage as o; "
            f"print(o({location!r}).read('a'))"
        ),
    ]
    found = subprocess.run(
        told, env={**os.environ, **environment}, text=True, capture_output=True, check=True
    )
    assert found.stdout == "b'x'\n"


def test_a_bucket_that_is_not_there_is_told_with_who_was_asked(endpoint: str) -> None:
    storage = FsspecStorage.open("s3://no-such-bucket/orders")
    operations: list[Callable[[], object]] = [
        lambda: list(storage.list()),
        lambda: storage.stat("a"),
        lambda: storage.read("a"),
        lambda: storage.write("a", contract.of(b"x")),
        lambda: storage.create("a", b"x"),
        lambda: storage.write("a", contract.of(b"x" * 5 * CHUNK)),
        lambda: storage.move("a", "b"),
    ]
    for operation in operations:
        with pytest.raises(StorageError, match="the bucket is not there") as raised:
            operation()
        assert not isinstance(raised.value, TransientStorageError)
        assert endpoint.removeprefix("http://") in raised.value.fact
        assert "s3://no-such-bucket/orders" in raised.value.fact
        assert raised.value.hint


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_file_whose_size_is_known_is_read_without_a_question_for_it(
    environment: dict[str, str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FsspecStorage.open(f"s3://{s3.BUCKET}/{uuid.uuid4().hex}")
    content, asked = os.urandom(size), list[str]()
    storage.write("a", contract.of(content))
    told = storage._fs.info
    monkeypatch.setattr(
        storage._fs, "info", lambda path, **more: [asked.append(path), told(path, **more)][1]
    )
    for offset in {0, size // 2, size - 1}:
        assert b"".join(storage.chunks("a", offset, size)) == content[offset:]
    assert asked == []


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 5])
def test_a_file_that_is_not_as_long_as_it_was_listed_is_told_as_it_is(
    environment: dict[str, str], size: int
) -> None:
    """So that whoever counts sees it: at most one byte more is read of one that has grown."""
    storage, content = FsspecStorage.open(f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"), os.urandom(size)
    storage.write("a", contract.of(content))
    for longer in (size + 1, size + CHUNK, size + CHUNK + 3):
        assert b"".join(storage.chunks("a", 0, longer)) == content
    for shorter in {size - 1, size // 2} - {-1, size}:
        found = b"".join(storage.chunks("a", 0, shorter))
        assert len(found) > shorter and content.startswith(found)
    with pytest.raises(MissingFile):
        next(storage.chunks("b", 0, 7))
