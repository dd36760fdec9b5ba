"""What is behind fsspec: errors told apart, uploads given up, and file systems whose manners
differ.

The file systems here are written for these tests on fsspec's own classes, each with one trait of a
real one: an object store whose files appear on close and can be created once, one that lists by
directory, one that fails.
"""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.fsspec.failures import from_fsspec
from stateshift.storage.fsspec.storage import FsspecStorage
from stateshift.storage.fsspec.ways import Way, lists_whole_trees, way_of
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import CHUNK

# -- errors


class ClientError(Exception):
    """As botocore's: the answer in `response`."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class HttpError(Exception):
    """As gcsfs': the status in `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class ClientResponseError(Exception):
    """As aiohttp's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}, url='https://x/?X-Amz-Signature=SECRET'")
        self.status = status


class HttpResponseError(Exception):
    """As azure's."""

    def __init__(self, status_code: int, error_code: str) -> None:
        super().__init__(f"({error_code})")
        self.status_code, self.error_code = status_code, error_code


class HTTPError(OSError):
    """As requests': the answer in `response`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Server Error")
        self.response = type("Response", (), {"status_code": status})()


def named(name: str, base: type[Exception] = Exception) -> Exception:
    error: Exception = type(name, (base,), {})("told")
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


PASSING = [
    ConnectionResetError(),
    TimeoutError(),
    TimeoutError(),
    TimeoutError(),
    BrokenPipeError(),
    ClientError("SlowDown", 503),
    ClientError("RequestTimeout", 400),
    ClientError("ThrottlingException", 400),
    ClientError("InternalError", 500),
    caused(OSError(16, "Please reduce your request rate"), ClientError("SlowDown", 503)),
    caused(OSError(5, "?"), ClientError("Throttling", 429)),
    HttpError(429),
    HttpError(503),
    ClientResponseError(502),
    HttpResponseError(503, "ServerBusy"),
    HttpResponseError(500, "OperationTimedOut"),
    HTTPError(504),
    HTTPError(429),
    named("EndpointConnectionError"),
    named("ServerDisconnectedError"),
    named("ClientPayloadError"),
    named("FSTimeoutError"),
    named("ConnectionError", OSError),  # requests' own, which is not the built-in one
    named("ServiceRequestError"),
]
LASTING = [
    PermissionError("Access Denied"),
    caused(PermissionError("Access Denied"), ClientError("AccessDenied", 403)),
    ClientError("InvalidBucketName", 400),
    HttpError(400),
    HttpError(401),
    ClientResponseError(403),
    HTTPError(400),
    named("NoCredentialsError"),
    named("ClientAuthenticationError"),
    OSError(28, "No space left on device"),
    ValueError("Bucket name is wrong"),
    RuntimeError("The DiskSpace quota of /p is exceeded"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_transient(error: Exception) -> None:
    assert type(from_fsspec(error, "s3://b", "k")) is TransientStorageError


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_does_not_pass_is_not(error: Exception) -> None:
    assert type(from_fsspec(error, "s3://b", "k")) is StorageError


@pytest.mark.parametrize(
    "error",
    [
        FileExistsError("k"),
        ClientError("PreconditionFailed", 412),
        caused(
            OSError(22, "At least one of the pre-conditions"),
            ClientError("PreconditionFailed", 412),
        ),
        HttpResponseError(409, "BlobAlreadyExists"),
    ],
    ids=repr,
)
def test_a_refused_create_is_recognised(error: Exception) -> None:
    assert type(from_fsspec(error, "s3://b", "k")) is AlreadyThere


def test_what_is_not_there_is_missing() -> None:
    assert type(from_fsspec(FileNotFoundError("k"), "s3://b", "k")) is MissingFile


@pytest.mark.parametrize(
    "error",
    [
        caused(FileNotFoundError("?"), ClientError("NoSuchBucket", 404)),
        HttpResponseError(404, "ContainerNotFound"),
    ],
)
def test_a_bucket_that_is_missing_is_not_a_file_that_is(error: Exception) -> None:
    told = from_fsspec(error, "s3://b", "k", "minio:9000")
    assert type(told) is StorageError
    assert told.fact == "s3://b/k (at minio:9000): the bucket is not there"
    assert told.hint


def test_parts_that_somebody_tidied_away_are_sent_again() -> None:
    error = caused(
        FileNotFoundError("The upload ID may be invalid"), ClientError("NoSuchUpload", 404)
    )
    assert type(from_fsspec(error, "s3://b", "k")) is TransientStorageError


def test_no_credentials_get_into_a_message() -> None:
    for error in (
        ClientResponseError(500),
        RuntimeError("GET http://nn/webhdfs/v1/p?op=OPEN&delegation=SECRET failed"),
        ValueError("sftp://me:SECRET@host/p"),
    ):
        told = from_fsspec(error, "sftp://me:SECRET@host/p", "k")
        assert "SECRET" not in f"{told.fact} {told.hint} {told.location}"


# -- opening


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("s3a://bucket/k", "pip install 'stateshift[s3]'"),
        ("gs://bucket/k", "pip install 'stateshift[gcs]'"),
        ("abfs://box@account.dfs.core.windows.net/k", "pip install 'stateshift[abfs]'"),
    ],
)
def test_a_package_that_is_missing_is_named_as_pip_takes_it(location: str, hint: str) -> None:
    package = {"s3a": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}[location.split(":")[0]]
    script = (  # in a process where nobody has it
        f"import sys; sys.modules[{package!r}] = None\n"
        "from stateshift.errors import StorageError\n"
        "from stateshift.storage.opening import open_storage\n"
        f"try: open_storage({location!r})\n"
        "except StorageError as error: print(error.hint)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == hint


def test_an_unknown_scheme_is_refused_with_a_way_to_see_the_known_ones() -> None:
    with pytest.raises(StorageError, match="nope:") as raised:
        open_storage("nope://x/y")
    assert "available_protocols" in (raised.value.hint or "")


# -- an object store


class Bucket(AsyncFileSystem):  # type: ignore[misc]
    """Objects appear when their upload completes; `create` is conditional; `rm` and `mv` would
    expand names.
    """

    protocol = "bucket"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.aborted = 0
        self.lock = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(path).removeprefix("bucket://").rstrip("/")

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        with self.lock:
            self.calls.append("put")
            if mode == "create" and path in self.objects:
                raise FileExistsError(path)
            self.objects[path] = bytes(value)

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if path in self.objects:
            return {"name": path, "size": len(self.objects[path]), "type": "file"}
        if any(name.startswith(path + "/") for name in self.objects):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    async def _find(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        self.calls.append("find")
        names = [name for name in self.objects if name == path or name.startswith(path + "/")]
        return {name: await self._info(name) for name in names}

    async def _cat_file(
        self, path: str, start: Any = None, end: Any = None, **kwargs: Any
    ) -> bytes:
        return self.objects[path][start:end]

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.objects[path2] = self.objects[path1]

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    def _open(
        self, path: str, mode: str = "rb", block_size: int = 5 << 20, **kwargs: Any
    ) -> BucketFile:
        return BucketFile(self, path, mode, block_size, **kwargs)


class BucketFile(AbstractBufferedFile):  # type: ignore[misc]
    def _initiate_upload(self) -> None:
        self.parts = io.BytesIO()

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.write(self.buffer.getvalue())
        if final:
            self.fs.objects[self.path] = self.parts.getvalue()
        return True

    def discard(self) -> None:
        self.fs.aborted += 1


OBJECTS = Way(whole=True, directories="none", exclusive="mode", durable=True)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def objects(bucket: Bucket) -> FsspecStorage:
    return FsspecStorage(bucket, "bucket://b/p", "b/p", OBJECTS)


def test_a_small_object_is_one_request_under_its_own_name(
    bucket: Bucket, objects: FsspecStorage
) -> None:
    objects.write("a*?[b]", lambda: iter([b"x", b"y"]))
    assert bucket.objects == {"b/p/a*?[b]": b"xy"}
    assert bucket.calls == ["put"]


def test_a_large_object_is_uploaded_in_parts(bucket: Bucket, objects: FsspecStorage) -> None:
    content = bytes(range(256)) * (5 * CHUNK // 256)
    assert (
        objects.write(
            "a", lambda: (content[i : i + 1_000_000] for i in range(0, len(content), 1_000_000))
        )
        == 5 * CHUNK
    )
    assert bucket.objects == {"b/p/a": content}
    assert b"".join(objects.chunks("a", 3)) == content[3:]


@pytest.mark.long
@pytest.mark.parametrize("size", [10, 2 * CHUNK, 10 * CHUNK])
def test_an_upload_whose_content_fails_never_completes(
    bucket: Bucket, objects: FsspecStorage, size: int
) -> None:
    objects.write("a", lambda: iter([b"old"]))

    def content() -> Iterator[bytes]:
        yield bytes(size)
        raise ZeroDivisionError

    for path in ("a", "b"):
        with pytest.raises(ZeroDivisionError):
            objects.write(path, content)
    gc.collect()  # fsspec closes, and so completes, what is collected
    assert bucket.objects == {"b/p/a": b"old"}
    assert bucket.aborted == (2 if size > CHUNK else 0)


def test_an_object_is_created_once(objects: FsspecStorage, bucket: Bucket) -> None:
    objects.create("lock", b"one")
    with pytest.raises(AlreadyThere):
        objects.create("lock", b"two")
    assert bucket.objects == {"b/p/lock": b"one"}
    assert objects.traits.exclusive


def test_an_object_is_moved_by_its_literal_name(objects: FsspecStorage, bucket: Bucket) -> None:
    for name in ("a*", "ab"):
        objects.write(name, lambda name=name: iter([name.encode()]))
    objects.move("a*", "c?")
    assert bucket.objects == {"b/p/ab": b"ab", "b/p/c?": b"a*"}
    objects.remove("a*")
    assert len(bucket.objects) == 2


def test_a_move_that_was_killed_after_its_copy_is_finished_by_its_repeat(
    objects: FsspecStorage, bucket: Bucket
) -> None:
    bucket.objects = {"b/p/a": b"same", "b/p/b": b"same", "b/p/c": b"other"}
    objects.move("a", "b")
    assert bucket.objects == {"b/p/b": b"same", "b/p/c": b"other"}
    with pytest.raises(AlreadyThere):
        objects.move("c", "b")


def test_a_listing_is_one_call_and_takes_no_neighbour(
    objects: FsspecStorage, bucket: Bucket
) -> None:
    bucket.objects = {
        "b/p": b"",
        "b/p/a": b"",
        "b/p/d/": b"",
        "b/p/d/b": b"1",
        "b/p2/c": b"",
        "b/p/.stateshift-0.tmp": b"",
    }
    assert [(i.path, i.size) for i in objects.list()] == [("a", 0), ("d/b", 1)]
    assert [i.path for i in objects.list("d")] == ["d/b"]
    assert bucket.calls == ["find", "find"]


def test_a_release_that_does_not_know_conditional_writes_is_not_called_exclusive() -> None:
    class Old(Bucket):
        async def _pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:  # type: ignore[override]
            self.objects[path] = value

    assert way_of("s3", Bucket()).exclusive == "marked"
    assert way_of("s3", Old()).exclusive is None
    old = FsspecStorage(Old(), "s3://b", "b", way_of("s3", Old()))
    old.create("lock", b"1")
    with pytest.raises(AlreadyThere):
        old.create("lock", b"2")
    assert not old.traits.exclusive


# -- one that renames, and lists by directory


class Remote(MemoryFileSystem):  # type: ignore[misc]
    cachable = False
    find = AbstractFileSystem.find

    def __init__(self) -> None:
        super().__init__(global_store=False)


class Broken(Remote):
    """One directory cannot be listed."""

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path.endswith("/d"):
            raise ConnectionResetError("cut")
        return super().ls(path, detail, **kwargs)


REMOTE = Way(renames=True, directories="kept", durable=True)


def test_a_directory_that_cannot_be_listed_is_an_error_not_an_empty_one() -> None:
    system = Broken()
    storage = FsspecStorage(system, "sftp://host/p", "/p", REMOTE)
    storage.write("a", lambda: iter([b""]))
    storage.write("d/b", lambda: iter([b""]))
    assert not lists_whole_trees(system)
    assert list(system.find("/p")) == ["/p/a"]  # what fsspec itself would have said
    with pytest.raises(TransientStorageError):
        list(storage.list())


def test_a_storage_that_cannot_be_asked_is_not_taken_for_empty() -> None:
    class Unreachable(Remote):
        def info(self, path: str, **kwargs: Any) -> Any:
            raise ConnectionRefusedError

    storage = FsspecStorage(Unreachable(), "sftp://host/p", "/p", REMOTE)
    for ask in (
        lambda: storage.stat("a"),
        lambda: storage.read("a"),
        lambda: storage.create("a", b""),
        lambda: storage.move("a", "b"),
    ):
        with pytest.raises(TransientStorageError):
            ask()


def test_a_mistake_of_ours_is_not_made_a_storage_error() -> None:
    class Mistaken(Remote):
        def info(self, path: str, **kwargs: Any) -> Any:
            raise TypeError("info() got an unexpected keyword argument")

    with pytest.raises(TypeError):
        FsspecStorage(Mistaken(), "sftp://host/p", "/p", REMOTE).stat("a")


@pytest.mark.parametrize(
    ("info", "modified"),
    [
        ({"mtime": 5.5}, 5.5),
        ({"updated": "1970-01-01T00:00:05.500Z"}, 5.5),
        ({"LastModified": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}, 5.0),
        ({"last_modified": None, "created": "nonsense"}, 0.0),
        ({}, 0.0),
    ],
)
def test_times_are_read_from_where_a_file_system_puts_them(
    info: dict[str, Any], modified: float
) -> None:
    class Timed(Remote):
        def info(self, path: str, **kwargs: Any) -> Any:
            return {"name": path, "size": 1, "type": "file", **info}

    told = FsspecStorage(Timed(), "sftp://host/p", "/p", REMOTE).stat("a")
    assert told is not None
    assert told.modified == modified
