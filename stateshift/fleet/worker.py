"""A process of this machine that carries out orders, one after the other, until nobody wants more.

    stdin    the settings as a line of JSON, then an order a line; or STOP
    stdout   two lines for an order: what it took, {"cpu": seconds, "memory": bytes}; its answer

    STOP     the order at work ends at its next write, as Interrupted
    the end  of stdin: whoever started us has closed it, or is gone. We end at once, also in the
             middle of an order, which is what `kill -9` would do: repeating it is always safe.
             Nobody needs the temporary files of the processes any more

Ctrl-C and SIGTERM go to a whole group of processes, and are for the one who started us: it says
STOP, and has them ignored here. Nothing but answers may leave by stdout: other prints go to stderr.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from typing import IO

from stateshift.fleet.task import carry_out, open_world
from stateshift.formats import bounds
from stateshift.machine import memory_taken
from stateshift.storage.protocol import Storage

STOP = b"stop\n"


def serve() -> None:
    """Carry out the orders of stdin; the program of such a process."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = json.loads(orders.readline())
    bounds.set_total(settings["memory"])
    tempfile.tempdir = settings["scratch"]
    _Worker(answers, settings["scratch"]).serve(orders)


class _Worker:
    """The state of a worker from one order to the next: storages, and whether it is to stop."""

    def __init__(self, answers: IO[bytes], scratch: str) -> None:
        self._answers, self._scratch = answers, scratch
        self._stop = threading.Event()
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._opened: dict[str, Storage] = {}

    def serve(self, lines: IO[bytes]) -> None:
        threading.Thread(target=self._read, args=(lines,), name="orders", daemon=True).start()
        while True:
            used, answer = self._answer(self._orders.get())
            self._answers.write(f"{json.dumps(used)}\n{answer}\n".encode())
            self._answers.flush()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            if line == STOP:
                self._stop.set()
            else:
                self._orders.put(line.decode())
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)

    def _answer(self, order: str) -> tuple[dict[str, float], str]:
        """Return the cost of an order, and its answer."""
        began = time.process_time()
        answer = carry_out(
            order, lambda order: replace(open_world(order, self._opened), stop=self._stop)
        )
        cpu_seconds = round(time.process_time() - began, 3)
        return {"cpu": cpu_seconds, "memory": memory_taken()}, answer
