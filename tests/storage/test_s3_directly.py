"""Objects of S3 that are asked for without s3fs, once it has shown how; and all that makes it be
asked again. Beside a stand-in here; the contract on real servers is in
tests/servers/test_storage_on_s3.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from stateshift.errors import StorageError, TransientStorageError
from stateshift.storage.fsspec import s3_directly
from stateshift.storage.fsspec.storage import FsspecStorage
from tests.support.listening import listening
from tests.support.s3 import forget

Answer = tuple[int, bytes]
REFUSAL = b"<Error><Code>No</Code><Message>Please wait</Message></Error>"


@dataclass
class Bucket:
    """A stand-in for S3: keeps what is put. `answers` come before its own, one for each request
    by the direct way.
    """

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list
    )  # method, path, headers
    answers: list[int | None] = field(default_factory=list)  # a status; None: it hangs up

    def direct(self, method: str) -> list[dict[str, str]]:
        """The requests that s3fs did not make: each of its own has an id."""
        return [
            headers
            for m, _, headers in self.seen
            if m == method and "amz-sdk-invocation-id" not in headers
        ]

    def usual(self, method: str) -> list[dict[str, str]]:
        return [
            headers
            for m, _, headers in self.seen
            if m == method and "amz-sdk-invocation-id" in headers
        ]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    kept = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            path, body = unquote(self.path.partition("?")[0]), _body(self.rfile, headers)
            kept.seen.append((self.command, path, headers))
            answer = None
            if "amz-sdk-invocation-id" not in headers and kept.answers:
                answer = kept.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
            status, told = (answer, REFUSAL) if answer else self._kept(path, headers, body)
            told = (
                b"" if status == 204 else told
            )  # it has none: whoever read on would take it for the next answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(told)))
            if not answer:
                self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Mon, 23 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(told)

        def _kept(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
            if self.command == "PUT":
                kept.objects[path] = body
                return 200, b""
            if path not in kept.objects:
                return 404, b"<Error><Code>NoSuchKey</Code></Error>"
            found = kept.objects[path]
            if "range" in headers:
                first, last = map(int, headers["range"].removeprefix("bytes=").split("-"))
                return 206, found[first : last + 1]
            return 200, found

        do_GET = do_PUT = do_HEAD = do_any

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # who asked has gone
                super().handle()

        def log_message(self, *_: object) -> None:
            """Quietly."""

    for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with listening(Handler) as place:
        kept.url = f"http://{place}"
        yield kept
    forget()


def _body(stream: Any, headers: dict[str, str]) -> bytes:
    """Also where it comes in pieces, with its sum behind it."""
    if (
        "aws-chunked" not in headers.get("content-encoding", "")
        and "transfer-encoding" not in headers
    ):
        return bytes(stream.read(int(headers.get("content-length") or 0)))
    found = b""
    while size := int(stream.readline().split(b";")[0], 16):
        found += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return found


def at(bucket: Bucket, **options: Any) -> FsspecStorage:
    given = {"endpoint_url": bucket.url, "key": "K", "secret": "S", **options}
    return FsspecStorage.open("s3://b/a b/place%20#?+", **given)


def put(storage: FsspecStorage, *names: str) -> None:
    for name in names:
        storage.write(name, lambda name=name: iter([name.encode()]))


def got(storage: FsspecStorage, name: str) -> bytes:
    return b"".join(storage.chunks(name, size=len(name.encode())))


@pytest.mark.long
def test_the_first_of_a_kind_is_asked_for_by_the_package_and_the_others_as_it_was(
    bucket: Bucket,
) -> None:
    storage = at(bucket)
    names = ("one", "two", "drei und ä/~(4)*'", "a+b=c&d;e,f@g:h!$", "p%2Fq")
    put(storage, *names)
    assert [got(storage, name) for name in names] == [name.encode() for name in names]
    assert bucket.objects == {f"/b/a b/place%20#?+/{name}": name.encode() for name in names}
    assert [info.size for name in names if (info := storage.stat(name))] == [
        len(name.encode()) for name in names
    ]
    assert (
        len({storage.stat(name) for name in names}) == len(names) and storage.stat("none") is None
    )
    bucket.seen[-2:] = []  # of the one that is not there
    storage.write("empty", lambda: iter([]))
    assert (
        bucket.objects["/b/a b/place%20#?+/empty"] == b""
        and bucket.seen.pop()[2]["content-length"] == "0"
    )
    for method in ("PUT", "GET"):
        assert (len(bucket.usual(method)), len(bucket.direct(method))) == (1, len(names) - 1)
    assert (len(bucket.usual("HEAD")), len(bucket.direct("HEAD"))) == (1, 2 * len(names))
    (usual,), direct = bucket.usual("PUT"), bucket.direct("PUT")
    for name, headers in zip(names[1:], direct, strict=True):
        assert base64.b64decode(headers["x-amz-checksum-crc32"]) == zlib.crc32(
            name.encode()
        ).to_bytes(4, "big")
        assert headers["user-agent"] == usual["user-agent"]
        assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=K/")


def test_what_an_object_is_to_be_like_is_told_for_each(bucket: Bucket) -> None:
    more = {
        "StorageClass": "STANDARD_IA",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "mine",
        "ACL": "private",
    }
    storage = at(bucket, s3_additional_kwargs=more, requester_pays=True)
    put(storage, "one", "two")
    got(storage, "one"), got(storage, "two")
    (direct,) = bucket.direct("PUT")
    assert {
        name: direct.get(name)
        for name in (
            "x-amz-storage-class",
            "x-amz-server-side-encryption",
            "x-amz-server-side-encryption-aws-kms-key-id",
            "x-amz-acl",
            "x-amz-request-payer",
        )
    } == {
        "x-amz-storage-class": "STANDARD_IA",
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-acl": "private",
        "x-amz-server-side-encryption-aws-kms-key-id": "mine",
        "x-amz-request-payer": "requester",
    }
    assert bucket.direct("GET")[0]["x-amz-request-payer"] == "requester"


@pytest.mark.parametrize(
    "status", [200, 204, 301, 400, 403]
)  # 200: a page of whoever stands between
def test_what_goes_wrong_is_left_to_the_usual_way(bucket: Bucket, status: int) -> None:
    storage = at(bucket)
    put(storage, "one")
    bucket.answers[:] = [status]
    put(storage, "two", "three")
    assert sorted(bucket.objects.values()) == [b"one", b"three", b"two"]
    assert (len(bucket.usual("PUT")), len(bucket.direct("PUT"))) == (2, 2)
    assert got(storage, "one") == b"one"
    bucket.answers[:] = [status]
    assert got(storage, "two") == b"two"


@pytest.mark.parametrize("status", [None, 429, 500, 503])
def test_what_may_pass_is_told_and_nobody_asks_again_by_himself(
    bucket: Bucket, status: int | None
) -> None:
    storage = at(bucket)
    put(storage, "one")
    assert got(storage, "one") == b"one" and storage.stat("one") is not None
    for does in (
        lambda: put(storage, "two"),
        lambda: got(storage, "one"),
        lambda: storage.stat("one"),
    ):
        bucket.answers[:], before = [status], len(bucket.seen)
        with pytest.raises(
            TransientStorageError, match=r"Please wait|Connection|Server Error|Requests|Unavailable"
        ):
            does()
        assert len(bucket.seen) == before + 1
        does()
        assert len(bucket.seen) == before + 2
    assert len(bucket.objects) == 2


def test_after_three_in_a_row_it_is_left_at_that_for_a_while(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = at(bucket)
    put(storage, "0")
    bucket.answers[:] = [403] * 100
    put(storage, *map(str, range(1, 10)))
    assert len(bucket.objects) == 10 and len(bucket.direct("PUT")) == 3
    bucket.answers.clear()
    now = s3_directly.time.monotonic() + 61
    monkeypatch.setattr(s3_directly.time, "monotonic", lambda: now)
    put(storage, "later")
    assert len(bucket.direct("PUT")) == 4


def test_one_that_was_never_sent_shows_nothing_and_the_next_one_does(bucket: Bucket) -> None:
    storage = at(bucket)
    client = storage._objects._client("b/one")  # type: ignore[attr-defined]

    def lost(request: object, **_: object) -> None:
        raise ConnectionError("nobody is there")

    client.meta.events.register_first("before-send.s3.PutObject", lost)
    with pytest.raises(StorageError):
        put(storage, "one")
    client.meta.events.unregister("before-send.s3.PutObject", lost)
    put(storage, "one", "two")
    assert (len(bucket.usual("PUT")), len(bucket.direct("PUT"))) == (1, 1)


def test_an_object_that_is_not_there_is_told_as_ever(bucket: Bucket) -> None:
    storage = at(bucket)
    put(storage, "one")
    assert got(storage, "one") == b"one"
    with pytest.raises(StorageError, match="none"):
        list(storage.chunks("none", size=4))


@pytest.mark.parametrize(
    "options",
    [
        {"anon": True},
        {"config_kwargs": {"signature_version": "s3"}},
        {
            "config_kwargs": {"request_checksum_calculation": "when_required"},
            "s3_additional_kwargs": {"ChecksumSHA1": "x"},
        },
        {"s3_additional_kwargs": {"ContentEncoding": "gzip"}},
    ],
)
def test_what_is_set_up_in_another_way_is_left_to_the_package(
    bucket: Bucket, options: dict[str, Any]
) -> None:
    if options.get("anon"):
        options = {**options, "key": None, "secret": None}
    storage = at(bucket, **options)
    put(storage, "one", "two", "three")
    assert len(bucket.objects) == 3 and bucket.direct("PUT") == []


def test_a_proxy_is_left_to_the_package(bucket: Bucket) -> None:
    """The stand-in is the proxy, too: it answers whatever host is asked for."""
    storage = at(
        bucket, endpoint_url="http://far.away", config_kwargs={"proxies": {"http": bucket.url}}
    )
    with pytest.raises(StorageError):
        got(storage, "nothing")
    put(storage, "one", "two")
    assert bucket.direct("PUT") == [] and len(bucket.usual("PUT")) == 2


def test_credentials_that_have_changed_are_taken_after_a_while(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They end so soon that each time they are asked for, they are asked for anew."""
    told, config = tmp_path / "told", tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = cat {told}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(s3_directly, "_CREDENTIALS_SECONDS", 0.0)

    def tell(key: str) -> None:
        expires = (datetime.now(UTC) + timedelta(minutes=12)).isoformat()
        told.write_text(
            json.dumps(
                {
                    "Version": 1,
                    "AccessKeyId": key,
                    "SecretAccessKey": "S",
                    "SessionToken": f"of {key}",
                    "Expiration": expires,
                }
            )
        )

    tell("FIRST")
    storage = at(bucket, key=None, secret=None)
    put(storage, "one", "two")
    tell("SECOND")
    put(storage, "three")
    found = [
        (h["x-amz-security-token"], h["authorization"].split("=")[1].split("/")[0])
        for h in bucket.direct("PUT")
    ]
    assert found == [("of FIRST", "FIRST"), ("of SECOND", "SECOND")]
