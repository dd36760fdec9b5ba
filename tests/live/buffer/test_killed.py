"""A buffer that is killed while producers write: what it has answered is there, once, in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live.buffer.ground import connected, posted, told, values_at

ROUNDS = 3
PRODUCERS = 3
ACKNOWLEDGED_LEAST = 60  # of each producer, before the kill


@dataclass
class Started:
    """A buffer in a process of its own."""

    process: subprocess.Popen[str]
    hook: str
    socket: str
    serves: str

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start(folder: Path) -> Started:
    words = ["live", "buffer", str(folder), "--listen", "http://127.0.0.1:0", "--json"]
    words += ["--listen", "tcp://127.0.0.1:0?ack", "--memory", "1MiB", "--disk", "64MiB"]
    process = subprocess.Popen(
        [sys.executable, "-m", "stateshift", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    return Started(process, *said["listens"], said["serves"])


@dataclass
class Producer:
    """Whoever numbers its records, and knows which of them were acknowledged. `sent` counts also
    those of which it never heard.
    """

    name: str
    sent: int = 0
    before: int = 0
    acknowledged: list[int] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def value(self, number: int) -> bytes:
        return b"%s %d %s" % (self.name.encode(), number, b"x" * (number % 700))

    def next(self) -> bytes:
        self.sent += 1
        return self.value(self.sent - 1)

    def begin(self) -> None:
        """Begin a round."""
        self.enough.clear()
        self.before = len(self.acknowledged)

    def count(self, number: int) -> None:
        self.acknowledged.append(number)
        if len(self.acknowledged) >= self.before + ACKNOWLEDGED_LEAST:
            self.enough.set()

    def post(self, hook: str) -> None:
        """Post records until nobody answers."""
        try:
            while posted(hook, self.next())[0] == 200:
                self.count(self.sent - 1)
        except OSError:
            return
        except Exception as error:  # http.client has an error of its own for half an answer
            assert "HTTPException" in str(type(error).__mro__), error

    def write(self, address: str) -> None:
        """Write lines until nobody answers."""
        first, acknowledged = self.sent, 0
        try:
            with connected(address) as connection:
                while True:
                    connection.sendall(b"".join(self.next() + b"\n" for _ in range(5)))
                    lines = told(connection, b"\n").split()
                    if not lines:
                        return
                    for number in range(acknowledged, int(lines[-1])):
                        self.count(first + number)
                    acknowledged = int(lines[-1])
        except OSError:
            return


@pytest.mark.slow
def test_what_was_acknowledged_before_a_kill_is_there_once_and_in_order(tmp_path: Path) -> None:
    posting = [Producer(f"p{number}") for number in range(PRODUCERS)]
    writing = [Producer(f"w{number}") for number in range(PRODUCERS)]
    before: list[bytes] = []
    for _ in range(ROUNDS):
        buffer = start(tmp_path / "buffer")
        seen = values_at(buffer.serves)
        assert seen[: len(before)] == before, "what was read keeps its numbers"
        assert_acknowledged(seen, [*posting, *writing])
        threads = [threading.Thread(target=each.post, args=(buffer.hook,)) for each in posting]
        threads += [threading.Thread(target=each.write, args=(buffer.socket,)) for each in writing]
        for each in (*posting, *writing):
            each.begin()
        for thread in threads:
            thread.start()
        for each in (*posting, *writing):
            assert each.enough.wait(60), "too few were acknowledged"
        before = values_at(buffer.serves)
        buffer.kill()
        for thread in threads:
            thread.join()
    buffer = start(tmp_path / "buffer")
    try:
        seen = values_at(buffer.serves)
    finally:
        buffer.kill()
    assert seen[: len(before)] == before
    assert_acknowledged(seen, [*posting, *writing])


def assert_acknowledged(seen: list[bytes], producers: list[Producer]) -> None:
    """Every producer's records are there in their order and once; all that it heard of are."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for value in seen:
        name, number, _ = value.split(b" ")
        numbers[name.decode()].append(int(number))
    for producer in producers:
        found = numbers[producer.name]
        assert found == sorted(set(found)), "in order, and once"
        assert set(producer.acknowledged) <= set(found)
        assert all(number < producer.sent for number in found)
        values = set(seen)
        assert all(producer.value(number) in values for number in producer.acknowledged)
