"""Producers and readers over real sockets of this machine."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.errors import PlanError, SpecError, StorageError
from stateshift.live.buffer import listeners
from stateshift.live.buffer.client import Client
from stateshift.live.buffer.listeners import Address, parse_address
from stateshift.live.buffer.runner import run_buffer
from tests.live.buffer.ground import (
    LIMITS,
    SECONDS_MAX,
    HeldDisk,
    connected,
    posted,
    serving,
    told,
    values_at,
)


def test_a_posted_body_is_a_record_and_lines_are_many(tmp_path: Path) -> None:
    with serving(tmp_path, "http") as at_work:
        (hook,) = at_work.running.listens
        assert posted(hook, b'{"a":\n1}') == (200, b'{"first": 0, "count": 1}\n')
        assert posted(hook, b"one\r\ntwo\n\nfour", "/lines?x=1")[1] == b'{"first": 1, "count": 4}\n'
        assert posted(hook, b"", "/lines") == (200, b'{"first": 5, "count": 0}\n')
        expected = [b'{"a":\n1}', b"one", b"two", b"", b"four"]
        assert values_at(at_work.running.serves) == values_at(str(tmp_path)) == expected


def test_what_cannot_be_kept_is_refused_and_nothing_of_it_is_there(tmp_path: Path) -> None:
    files = HeldDisk()
    with serving(tmp_path, "http", files=files) as at_work:
        (hook,) = at_work.running.listens
        largest = at_work.buffer.request_bytes_max
        assert posted(hook, b"x" * largest)[0] == 200
        status, body = posted(hook, b"x" * (largest + 1))
        assert status == 413 and b"larger than" in body
        assert posted(hook, b"\n" * 5000, "/lines")[0] == 413
        assert posted(hook, iter([b"x"]))[0] == 411  # type: ignore[arg-type]
        files.is_full = True
        status, body = posted(hook, b"x")
        assert status == 503 and "No space left" in json.loads(body)["error"]
        assert len(values_at(at_work.running.serves)) == 1
        assert Client(at_work.running.serves).status().refused == 1


@pytest.mark.parametrize(
    ("header", "status"),
    [(b"Transfer-Encoding: chunked", b"411"), (b"Content-Length: 999999999999", b"413")],
    ids=["without a length", "too large"],
)
def test_a_producer_that_goes_on_after_its_refusal_reads_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, status: bytes
) -> None:
    monkeypatch.setattr(listeners, "LINGER_IDLE_SECONDS", SECONDS_MAX)
    with serving(tmp_path, "http") as at_work:
        (hook,) = at_work.running.listens
        with connected(hook) as producer:
            producer.sendall(b"POST / HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n")
            producer.settimeout(SECONDS_MAX)
            assert producer.recv(1, socket.MSG_PEEK) == b"H"
            for _ in range(100):
                producer.sendall(b"x" * 10_000)
            answer = told(producer)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b'"error"' in answer


def test_a_producer_that_sends_on_after_a_line_that_is_too_long_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LINGER_IDLE_SECONDS", SECONDS_MAX)
    with serving(tmp_path, "tcp?ack") as at_work, connected(at_work.running.listens[0]) as producer:
        producer.sendall(b"x" * (at_work.buffer.request_bytes_max + 1))
        assert b"error: a line is longer than" in told(producer)
        for _ in range(1000):
            producer.sendall(b"y" * 10_000)


def test_lines_of_a_socket_are_records_in_their_order(tmp_path: Path) -> None:
    with serving(tmp_path, "tcp?ack") as at_work:
        (address,) = at_work.running.listens
        with connected(address) as producer:
            producer.sendall(b"one\ntwo\r\n")
            assert told(producer, b"2\n").endswith(b"2\n")
            producer.sendall(b"".join(b"%d\n" % number for number in range(5000)) + b"rest")
            producer.shutdown(socket.SHUT_WR)
            assert told(producer).endswith(b"\n5003\n")
        expected = [b"one", b"two", *(b"%d" % number for number in range(5000)), b"rest"]
        assert values_at(at_work.running.serves) == expected


def test_a_line_that_is_too_long_ends_its_connection_and_what_was_before_is_kept(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "tcp?ack") as at_work:
        with connected(at_work.running.listens[0]) as producer:
            producer.sendall(b"good\n")
            assert told(producer, b"\n") == b"1\n"
            producer.sendall(b"x" * (at_work.buffer.request_bytes_max + 1))
            assert b"error: a line is longer than" in told(producer)
        assert values_at(at_work.running.serves) == [b"good"]


def test_a_socket_is_not_read_while_memory_is_full_and_nothing_is_lost(tmp_path: Path) -> None:
    files = HeldDisk()
    quick = replace(LIMITS, ack="memory")
    lines = [b"%06d" % number * 100 for number in range(4000)]
    with serving(tmp_path, "tcp", limits=quick, files=files) as at_work:
        files.free.clear()
        with connected(at_work.running.listens[0]) as producer:
            sending = threading.Thread(target=producer.sendall, args=(b"\n".join(lines),))
            sending.start()
            wait = threading.Event()
            while not at_work.buffer.status().refused:
                wait.wait(0.01)
            assert at_work.buffer.status().memory_bytes <= quick.memory
            files.free.set()
            sending.join()
            producer.shutdown(socket.SHUT_WR)
            assert told(producer) == b"", "the producer hears the end of its connection"
    with serving(tmp_path) as at_work:
        assert values_at(at_work.running.serves) == lines


# ------------------------------------------------------------------------------------ readers


def test_two_readers_go_their_own_ways(tmp_path: Path) -> None:
    with serving(tmp_path, "http") as at_work:
        for number in range(5):
            posted(at_work.running.listens[0], b"%d" % number)
        client = Client(at_work.running.serves)
        client.set_position("west", 2)
        client.set_position("east", 4)
        assert [r.number for part in client.records(2, 4) for r in part] == [2, 3]
        readers = {reader.name: reader.next for reader in client.status().readers}
        assert readers == {"west": 2, "east": 4}
        client.forget("west")
        with pytest.raises(PlanError, match="has no reader west"):
            client.forget("west")
        with pytest.raises(PlanError, match="record 9 was never promised"):
            list(client.records(9, 10))
        with pytest.raises(PlanError, match="nothing is at /readers/a/b"):
            client._ask("PUT", "/readers/a/b")
        with pytest.raises(PlanError, match="no name of a reader"):
            client.set_position("a%2fb", 0)


def test_a_buffer_that_does_not_run_is_named_with_the_command_that_starts_it(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as at_work:
        address = at_work.running.serves
    for place in (str(tmp_path), address):
        with pytest.raises(StorageError, match="no buffer answers") as caught:
            Client(place, 0.0).status()
        assert "stateshift live buffer" in str(caught.value.hint)
    with pytest.raises(PlanError, match="is no buffer"):
        Client(str(tmp_path / "none"), 0.0).status()


# ------------------------------------------------------------------------------------ addresses


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "one", "tcp") as at_work:
        taken = parse_address(at_work.running.listens[0], ("tcp",), "--listen")
        second = run_buffer(tmp_path / "two", [taken], Address("http", "127.0.0.1", 0), LIMITS)
        with pytest.raises(PlanError, match=r"cannot listen at tcp://.*in use"), second:
            pass


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:80",
        "tcp://127.0.0.1",
        "udp://127.0.0.1:1",
        "tcp://h:99999",
        "tcp://h:1/x",
        "tcp://h:1?x",
        "http://h:1?ack",
        "tcp://[h:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_address(text, ("tcp", "http"), "--listen")


def test_an_address_is_said_as_it_is_typed() -> None:
    for text in ("tcp://127.0.0.1:9000?ack", "http://[::1]:0", "http://0.0.0.0:80"):
        assert str(parse_address(text, ("tcp", "http"), "--listen")) == text
