"""WebHDFS as it goes wrong: a server that answers what it is told to, and what becomes of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.hdfs.storage import open_hdfs
from stateshift.storage.protocol import Storage
from tests.support.listening import listening

SECRET = "c2VjcmV0LXRva2Vu"


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    claims: int | None = None  # bytes it says it sends, where that is not true


def refused(exception: str, message: str = "said so", status: int = 403) -> Answer:
    told = {
        "RemoteException": {
            "exception": exception,
            "javaClassName": f"org.x.{exception}",
            "message": message,
        }
    }
    return Answer(status, json.dumps(told).encode(), (("Content-Type", "application/json"),))


def json_of(**told: object) -> Answer:
    return Answer(200, json.dumps(told).encode(), (("Content-Type", "application/json"),))


STATUS = json_of(
    FileStatus={"type": "FILE", "length": 5, "modificationTime": 1500, "pathSuffix": ""}
)
PAGE = Answer(404, b"<html>It works!</html>", (("Content-Type", "text/html"),))


@dataclass
class Server:
    """Answers of a NameNode by operation, one after the other; the last of a kind is repeated."""

    answers: dict[str, list[Answer]]
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def answer(self, op: str, path: str) -> Answer:
        self.asked.append((op, path))
        left = self.answers.get(op) or [Answer(404)]
        return left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def serving(**answers: list[Answer]) -> Iterator[Server]:
    told = Server(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                while int(self.rfile.readline(), 16):
                    self.rfile.readline()
                self.rfile.readline()
            answer = told.answer(query["op"][0], urlsplit(self.path).path)
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.send_header("Content-Length", str(answer.claims or len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = True

        do_GET = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Quietly."""

    with listening(Handler) as told.url:
        yield told


def opened(server: Server, **environment: str) -> Storage:
    return open_hdfs(f"webhdfs://{server.url}/place", {"HADOOP_USER_NAME": "nobody", **environment})


READ: Callable[[Storage], object] = lambda storage: storage.read("a")  # noqa: E731


@pytest.mark.parametrize(
    ("answer", "kind", "fact", "hint"),
    [
        (
            refused("FileNotFoundException", status=404),
            MissingFile,
            "place/a is not there",
            "inspect",
        ),
        (refused("SafeModeException"), TransientStorageError, "SafeModeException", "safemode"),
        (refused("RetriableException"), TransientStorageError, "RetriableException", "resume"),
        (refused("StandbyException"), TransientStorageError, "StandbyException", "haadmin"),
        (refused("AccessControlException"), StorageError, "no permission on", "getfacl"),
        (refused("InvalidToken", "token expired"), StorageError, "no longer valid", "another"),
        (refused("SecurityException", status=401), StorageError, "does not know who asks", "kinit"),
        (refused("DSQuotaExceededException"), StorageError, "space quota", "count -q"),
        (
            refused("BlockMissingException", status=400),
            TransientStorageError,
            "BlockMissing",
            "fsck",
        ),
        (
            refused("IOException", "Failed to find datanode, suggest to check cluster health."),
            TransientStorageError,
            "Failed to find datanode",
            "hdfs dfsadmin -report",
        ),
        (refused("SomethingNew"), StorageError, "SomethingNew: said so", "hdfs dfs -ls"),
        (Answer(401), StorageError, "does not know who asks", "kinit"),
        (Answer(503, b"Slow Down"), TransientStorageError, "HTTP 503", "resume"),
        (Answer(500, b"<html>"), TransientStorageError, "HTTP 500", "resume"),
        (PAGE, StorageError, "does not answer as WebHDFS", "getconf"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_refusal_is_told_by_who_can_mend_it(
    answer: Answer, kind: type[StorageError], fact: str, hint: str
) -> None:
    with serving(OPEN=[answer]) as server, pytest.raises(StorageError) as raised:
        READ(opened(server))
    assert type(raised.value) is kind
    assert fact in raised.value.fact
    assert server.url in raised.value.fact
    assert hint in (raised.value.hint or "")


def test_a_page_in_place_of_json_is_no_listing() -> None:
    page = replace(PAGE, status=200)
    with (
        serving(LISTSTATUS_BATCH=[page]) as server,
        pytest.raises(StorageError, match="HTTP 200, text/html"),
    ):
        list(opened(server).list())


def test_a_body_that_is_cut_short_is_not_taken_for_the_file() -> None:
    with (
        serving(OPEN=[Answer(200, b"half", claims=8)], GETFILESTATUS=[STATUS]) as server,
        pytest.raises(TransientStorageError),
    ):
        READ(opened(server))


def test_a_server_that_is_not_there_may_be_there_in_a_moment() -> None:
    with serving() as server:
        gone = opened(server)
    with pytest.raises(TransientStorageError, match="refused") as raised:
        READ(gone)
    assert raised.value.hint is not None


def test_the_next_namenode_is_asked_and_remembered(tmp_path: Path) -> None:
    fine = Answer(200, b"12345")
    with serving(OPEN=[refused("StandbyException")]) as spare, serving(OPEN=[fine]) as active:
        storage = of_nameservice(tmp_path, spare, active)
        assert [storage.read("a"), storage.read("a")] == [b"12345", b"12345"]
    assert (len(spare.asked), len(active.asked)) == (1, 2)


def test_where_no_namenode_is_active_each_is_quoted(tmp_path: Path) -> None:
    with serving(OPEN=[refused("StandbyException", "state standby")]) as spare:
        with serving() as gone:
            storage = of_nameservice(tmp_path, gone, spare)
        with pytest.raises(
            TransientStorageError, match=r"no NameNode is active .*refused.*StandbyException"
        ):
            storage.read("a")


def test_what_the_active_namenode_refuses_is_not_asked_of_the_spare_one(tmp_path: Path) -> None:
    with (
        serving(OPEN=[refused("AccessControlException")]) as active,
        serving(OPEN=[Answer(200)]) as spare,
    ):
        with pytest.raises(StorageError, match="no permission"):
            of_nameservice(tmp_path, active, spare).read("a")
        assert spare.asked == []


def test_a_lost_answer_of_a_datanode_leaves_no_file() -> None:
    with serving() as server:
        place = (("Location", f"http://{server.url}/webhdfs/v1/x?op=DATA"),)
        server.answers |= {
            "CREATE": [Answer(307, headers=place)],
            "DATA": [refused("IOException", "x", 500)],
        }
        with pytest.raises(StorageError):
            opened(server).write("a", lambda: iter([b"12345"]))
    assert [op for op, _ in server.asked] == ["CREATE", "DATA", "DELETE"]


def test_a_target_that_is_taken_is_told_by_its_own_name() -> None:
    with serving() as server:
        place = (("Location", f"http://{server.url}/webhdfs/v1/x?op=DATA"),)
        taken = refused("FileAlreadyExistsException")
        server.answers |= {
            "CREATE": [Answer(307, headers=place)],
            "DATA": [Answer(201)],
            "RENAME": [taken],
        }
        with pytest.raises(AlreadyThere, match=r"place/lock is there already"):
            opened(server).create("lock", b"mine")


def test_a_create_without_a_place_to_send_to_is_no_webhdfs() -> None:
    with (
        serving(CREATE=[Answer(200)]) as server,
        pytest.raises(StorageError, match="does not answer as WebHDFS"),
    ):
        opened(server).write("a", lambda: iter([b"x"]))


@pytest.mark.parametrize(
    "answer", [refused("InvalidToken", f"token={SECRET} expired"), Answer(503), Answer(404)]
)
def test_a_token_is_in_no_message(answer: Answer) -> None:
    with serving(OPEN=[answer]) as server:
        storage = opened(server, STATESHIFT_HDFS_TOKEN=SECRET)
        with pytest.raises(StorageError) as told:
            READ(storage)
    with pytest.raises(StorageError) as gone:
        READ(storage)
    for error in (told.value, gone.value):
        assert SECRET not in json.dumps(error.as_json())


def of_nameservice(conf: Path, *servers: Server) -> Storage:
    """Over several NameNodes, in this order, as a configuration names them."""
    told = {
        "dfs.nameservices": "shop",
        "dfs.ha.namenodes.shop": ",".join(f"nn{n}" for n in range(len(servers))),
    }
    told |= {
        f"dfs.namenode.http-address.shop.nn{n}": server.url for n, server in enumerate(servers)
    }
    inside = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in told.items()
    )
    (conf / "hdfs-site.xml").write_text(f"<configuration>{inside}</configuration>")
    environment = {
        "HADOOP_CONF_DIR": str(conf),
        "HADOOP_USER_NAME": "nobody",
        "STATESHIFT_HDFS": "web",
    }
    return open_hdfs("hdfs://shop/place", environment)


PLAIN = "hdfs://namenode.example/place"
INSTALLING = "pip install 'stateshift[hdfs]', for Hadoop's own RPC in place of HTTP"


@pytest.mark.parametrize(
    ("location", "wanted", "way_out"),
    [
        (PLAIN, "", INSTALLING),
        (PLAIN, "web", "unset STATESHIFT_HDFS, for Hadoop's own RPC in place of HTTP"),
        ("webhdfs://namenode.example:9870/place", "", ""),
        ("hdfs://other@namenode.example/place", "", ""),
        ("hdfs://other@namenode.example/place", "native", ""),
    ],
)
def test_a_location_over_http_says_how_it_would_go_by_rpc_if_it_can(
    monkeypatch: pytest.MonkeyPatch, location: str, wanted: str, way_out: str
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)  # as where it is not installed
    environment = {"STATESHIFT_HDFS": wanted, "HDFSCLI_CONFIG": os.devnull}
    assert open_hdfs(location, environment).traits.faster_by == way_out
