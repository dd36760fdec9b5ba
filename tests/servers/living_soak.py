"""Three applications whose bins go round, with Kafka before them and a group on S3 or HDFS; what
happens to them, and what came of it.

    soak = Soak(folder, NAMES, place=LOCATION, kafka=ADDRESS, jars=JARS, dice=Random(seed))
    soak.act()       the next thing that happens, by the dice
    soak.settle()    nothing is steered any more, and everybody lives
    soak.records()   the Kafka records, as a table
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy
import pyarrow as pa
import pyarrow.parquet

from stateshift.live.bins.files import Proposal
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.times import Moment
from stateshift.live.folder import Folder
from stateshift.storage.opening import open_patiently
from tests.acceptance.live_operators import BINS, visits_of_partitions
from tests.acceptance.living_bins import Applications, Row
from tests.acceptance.support import ROOT, environment, wait_until
from tests.servers.live_soak_job import CHAIN, NAMES
from tests.support.open_loop import rows
from tests.support.servers import downloads

HERE = Path(__file__).parent
FEEDING = HERE / "feeding_live_soak.py"
PARTITIONS = 2
FEED_SECONDS = 0.2
LATER_RECORDS = 1000
STRATEGIES = ("all-at-once", "fluid", "batched(3)", "optimised", "warm")
ACTS = (
    "move",
    "move",
    "move",
    "kill",
    "kill",
    "kill mover",
    "throttle",
    "pause",
    "abort",
    "replace",
)
NEEDED = ("move", "kill", "throttle", "replace")  # at least once each
PATIENT_MOVE = ("--timeout", "90", "--wait", "120")
PATIENT_CHANGE = ("--timeout", "240", "--wait", "240")
CODES = (0, 4, 7)  # that a command may end with: done, not now, aborted
COMMAND_SECONDS_MAX = 600.0
WAIT_SECONDS_MAX = 1800.0
FUNCTION = """
import pyarrow


def mark(rows):
    return rows.append_column("v", pyarrow.array([{number}] * rows.num_rows, pyarrow.int64()))
"""


@dataclass
class Soak(Applications):
    """Three workers, what steers them, and what feeds them. Files of this machine are in `folder`,
    those that are shared in `place`.
    """

    place: str = ""
    kafka: str = ""
    jars: str = ""
    topic: str = field(default_factory=lambda: f"events-{uuid.uuid4().hex}")
    dice: random.Random = field(default_factory=random.Random)
    deck: list[str] = field(default_factory=list)  # what happens next
    did: Counter[str] = field(default_factory=Counter)
    moves: list[tuple[Proposal, str]] = field(default_factory=list)  # with what became of each
    functions: int = 0
    sent: int = 0  # records
    largest: Counter[str] = field(default_factory=Counter)  # bytes by folder, when it had most
    mover: subprocess.Popen[bytes] | None = None
    changer: subprocess.Popen[bytes] | None = None
    ends: threading.Event = field(default_factory=threading.Event)

    script: ClassVar[Path] = HERE / "live_soak_job.py"
    operators: ClassVar[tuple[BinOperator, ...]] = (visits_of_partitions,)

    @property
    def location(self) -> str:
        return f"{self.place}/group"

    @property
    def output(self) -> str:
        """Where the rows go."""
        return f"{self.place}/output"

    def words(self, name: str) -> tuple[object, ...]:
        """What a worker's application is started with."""
        shared = ("--group", self.location, "--output", self.output)
        source = ("--kafka", self.kafka, "--topic", self.topic, "--jars", self.jars)
        return ("--folder", self.folder, "--name", name, *shared, *source)

    # ---------------------------------------------------------------- the records

    def make_topic(self) -> None:
        words = (str(downloads.python()), str(FEEDING), self.kafka, self.topic, "make")
        subprocess.run(words, check=True, capture_output=True, timeout=120)

    def feed(self) -> None:
        """Send records, so many a second, until it is over: each partition gets every second
        one.
        """
        words = (str(downloads.python()), str(FEEDING), self.kafka, self.topic, "feed")
        with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as feeder:
            assert feeder.stdin is not None, "it is a pipe"
            began = time.monotonic()
            while not self.ends.wait(FEED_SECONDS):
                due = int((time.monotonic() - began) * self.rate)
                for row in rows(self.sent, due, self.keys).to_pylist():
                    feeder.stdin.write(f"{row['number'] % PARTITIONS} {json.dumps(row)}\n")
                feeder.stdin.flush()
                self.sent = max(self.sent, due)
        assert feeder.returncode == 0, "the feeder has failed"

    def records(self) -> pa.Table:
        """Return the records that Kafka has, as a worker reads them."""
        words = (str(downloads.python()), str(FEEDING), self.kafka, self.topic, "read")
        read = subprocess.run(words, check=True, capture_output=True, text=True, timeout=1800)
        found = []
        for line in read.stdout.splitlines():
            partition, value = line.split(maxsplit=1)
            found.append({**json.loads(value), "partition": int(partition)})
        table = pa.Table.from_pylist(found)
        return table.append_column("v", pa.array([-1] * table.num_rows, pa.int64()))

    # ---------------------------------------------------------------- what happens

    def act(self) -> None:
        """Let one thing happen: in a long run all of them, one as often as the other."""
        if not self.deck:
            self.deck = self.dice.sample(ACTS, len(ACTS))
        match self.deck.pop():
            case "move":
                self._move()
            case "kill":
                self._kill_one()
            case "kill mover":
                self._kill_mover()
            case "throttle":
                self._say("throttle", *self.dice.choice([(), ("--bins", "2", "--gap", "1")]))
            case "pause":
                self._say("pause")
                time.sleep(self.dice.uniform(0.5, 4.0))
                self._say("resume")
            case "abort":
                if self.dice.random() < 0.3:
                    self._say("abort")
            case _:
                self._replace()

    def look(self) -> None:
        """Note what has become of moves, and how large the folder is; fail where a worker, or
        whoever steers, has.
        """
        self.is_alive()
        while (proposal := self.files.proposal(len(self.moves))) is not None:
            decided = self.files.decided(proposal.number)
            if decided is None:
                break
            self.moves.append((proposal, decided.outcome))
        sizes: Counter[str] = Counter()
        for file in self.files.storage.list(""):
            sizes[os.path.dirname(file.path)] += file.size
        if sizes.total() > self.largest.total():
            self.largest = sizes
        self.mover = self._still_at_work(self.mover)
        self.changer = self._still_at_work(self.changer)

    @property
    def most_bytes(self) -> int:
        """What the group's folder had at most."""
        return self.largest.total()

    @property
    def is_thorough(self) -> bool:
        """Whether everything has happened, and not all of it in vain."""
        has_moved = any(outcome == "applied" for _, outcome in self.moves)
        return has_moved and bool(self.versions()) and all(self.did[what] for what in NEEDED)

    def versions(self) -> set[int]:
        """Return the numbers of the functions that were applied."""
        found = set()
        for change in Folder(self.files.storage).changes():
            if change.applied:
                [link] = change.change.chains[CHAIN].links
                found.add(int(link.name.split(":")[0].removeprefix("mark_")))
        return found

    def settle(self) -> None:
        """Let moves and changes come to their end, as they are; go on until some records more are
        sent, which meet what was applied.
        """
        self._say("resume")
        self._say("throttle")
        for process in (self.mover, self.changer):
            if process is not None:
                process.wait(COMMAND_SECONDS_MAX)
        self.look()
        later = self.sent + LATER_RECORDS
        self.wait(lambda: self.sent > later, "nobody feeds")

    def _move(self) -> None:
        """Move some bins to another worker, unless somebody does."""
        if self.mover is not None:
            return
        target = self.dice.choice(self.names)
        count = self.dice.randrange(1, BINS // 2)
        bins = ",".join(map(str, self.dice.sample(range(BINS), count)))
        words = ["--to", target, "--bins", bins, "--strategy", self.dice.choice(STRATEGIES)]
        if self.dice.random() < 0.3:
            words += ["--prepared", "--gap", "1"]
        self.mover = self._start_command("move", *words, *PATIENT_MOVE)
        self.did["move"] += 1

    def _kill_one(self) -> None:
        """Kill a worker, and start it again a little later."""
        name = self.dice.choice(self.names)
        self.kill(name)
        time.sleep(self.dice.uniform(0.0, 3.0))
        self.start(name)
        self.did["kill"] += 1

    def _kill_mover(self) -> None:
        if self.mover is None:
            return
        self.mover.kill()
        self.mover.wait()
        self.mover = None
        self.did["kill mover"] += 1

    def _replace(self) -> None:
        """Give the chain another function, unless it gets one."""
        if self.changer is not None:
            return
        self.functions += 1
        module = f"mark_{self.functions}"
        (self.folder / f"{module}.py").write_text(FUNCTION.format(number=self.functions))
        words = (CHAIN, f"{module}:mark", "--scheduler", "epoch", *PATIENT_CHANGE)
        self.changer = self._start_command("replace", *words)
        self.did["replace"] += 1

    def _say(self, command: str, *words: str) -> None:
        """Run a short command to its end."""
        with suppress(subprocess.TimeoutExpired):
            process = self._start_command(command, *words)
            process.wait(COMMAND_SECONDS_MAX)
            self._still_at_work(process)
            self.did[command] += 1

    def _start_command(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "commands.log").open("ab") as log:
            log.write(f"$ live {command} {' '.join(words)}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", "stateshift", "live", command, self.location, *words],
                cwd=self.folder,
                env={**environment(), "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _still_at_work(
        self, process: subprocess.Popen[bytes] | None
    ) -> subprocess.Popen[bytes] | None:
        """Return a command that has not ended; fail where it has ended otherwise than it may."""
        if process is None or process.poll() is None:
            return process
        said = (self.folder / "commands.log").read_text(errors="replace")[-5000:]
        assert process.returncode in CODES, f"ended with {process.returncode}\n{said}"
        return None

    def end(self) -> None:
        """End everything that was started."""
        self.ends.set()
        for process in (self.mover, self.changer):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        super().end()

    # ---------------------------------------------------------------- what came of it

    def wait(self, done: object, otherwise: str) -> None:
        """Wait for something while the workers run: after a kill they have much to read."""
        assert callable(done)
        wait_until(lambda: self.is_alive() and done(), otherwise, WAIT_SECONDS_MAX, self.folder)

    def until_read(self, frontier: Moment) -> None:
        """Wait until everybody has come to a frontier, and what is awaited has come."""

        def is_done() -> bool:
            ledgers = list(self.ledgers())
            is_read = all(ledger.last and ledger.last.frontier == frontier for ledger in ledgers)
            awaited = [held for ledger in ledgers for held in ledger.held.values() if held.since]
            return is_read and not awaited

        self.wait(is_done, "the topic is not read to its end")

    def put_out(self, operator: str = visits_of_partitions.name) -> Iterator[tuple[str, Row]]:
        """Yield every row in the output, with the worker that has put it out."""
        storage = open_patiently(self.output)
        for file in sorted(storage.list(""), key=lambda file: file.path):
            content = storage.read(file.path)
            table = pyarrow.parquet.read_table(io.BytesIO(content))
            _, worker, _ = file.path.removesuffix(".parquet").split("-")
            for row in zip(*table.to_pydict().values(), strict=True):
                yield worker, row

    def owners(self, end: int) -> list[numpy.ndarray]:
        """Return of each bin the number of its worker at every time before an end, by what was
        decided.
        """
        owners = [numpy.full(end, bin % len(NAMES)) for bin in range(BINS)]
        updates = []
        for proposal, outcome in self.moves:
            if outcome == "applied":
                updates += proposal.updates
        for update in sorted(updates, key=lambda one: one.time):
            owners[update.bin][update.time :] = update.worker
        return owners
