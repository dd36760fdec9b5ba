"""Failing moves of a real Flink job, and a cron-like loop of `rebalance` to a target that fails every
second time. See `failing-moves`.

Each round begins with a job that counts on the old cluster. It is moved in a way that cannot succeed;
what is left is judged by the clusters themselves and by the job's output, which has each number
once, with its key's count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.support.flink import Cluster, faults, jar, lines, until  # noqa: E402

KEYS = 7
DOWN = "down since "
DAY = 86_400
RUNS_OF_A_SPEC = 5  # one spec is tried so often
RESTART_SECONDS_MAX = 90.0  # stop with a savepoint, a start, and another where that is refused
PAGE = ROOT / "scripts" / "bench" / "results" / "failing-moves.md"
ALIVE = ("RUNNING", "RESTARTING", "CREATED", "INITIALIZING")


class Proxy:
    """A Flink behind an address that can refuse starts, or be silent."""

    def __init__(self, url: str) -> None:
        self.url, self.mode = url, "open"
        self.starts = self.refused = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                is_start = self.path.endswith("/run") and self.command == "POST"
                proxy.starts += is_start
                if proxy.mode == "dead" or (proxy.mode == "dies" and is_start):
                    proxy.mode = "dead"
                    self.close_connection = True
                    self.connection.close()
                    return
                if is_start and (proxy.mode == "refuses" or proxy.odd()):
                    proxy.refused += 1
                    self._answer(400, b'{"errors": ["no more jobs here"]}', "application/json")
                    return
                headers = {
                    key: value
                    for key, value in self.headers.items()
                    if key.lower() not in ("host", "connection")
                }
                request = Request(proxy.url + self.path, body or None, headers, method=self.command)
                try:
                    with urlopen(request, timeout=60) as answer:
                        kind = answer.headers.get("Content-Type", "")
                        self._answer(answer.status, answer.read(), kind)
                except HTTPError as error:
                    kind = error.headers.get("Content-Type", "")
                    self._answer(error.code, error.read(), kind)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def odd(self) -> bool:
        return self.mode == "every second" and self.starts % 2 == 1

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


@dataclass
class Place:
    """Two clusters, the second one behind a proxy, and a folder of this round."""

    here: Cluster
    there: Cluster
    proxy: Proxy
    folder: Path
    arguments: list[str] = field(default_factory=list)

    def start(self) -> str:
        self.arguments = [
            *("--counters", "orders", "--keys", str(KEYS), "--name", "orders"),
            *("--output", str(self.folder / "out"), "--checkpoint-ms", "300"),
        ]
        id = self.here.run("jobs.Count", *self.arguments, parallelism=2)
        until(lambda: len(self.written()) > 50)
        return id

    def written(self) -> list[Any]:
        return lines(self.folder / "out" / "orders")

    def submit(self, *words: str) -> dict[str, Any]:
        return {
            "jar": str(jar(self.here.lib)),
            "entry_class": "jobs.Count",
            "parallelism": 2,
            "arguments": [*self.arguments, *words],
            "seconds_max": 40,
        }

    def clusters(self) -> dict[str, Any]:
        quick = {"request_seconds": 15, "settle_seconds": 3, "outage_seconds": 5}
        return {
            "old": {"kind": "flink_rest", "url": self.here.url},
            "new": {"kind": "flink_rest", "url": self.proxy.address, **quick},
        }

    def spec(self, id: str, kind: Kind) -> Path:
        job = {
            "name": "orders",
            "job_ids": [id],
            "source_cluster": "old",
            "target_cluster": "new",
            "target_directory": str(self.folder / "taken"),
            "new_savepoint_path": str(self.folder / "new"),
            "submit": self.submit(*kind.words),
            **({"source_submit": self.submit()} if kind.known else {}),
            **kind.more(self),
        }
        plain = {"version": 1, "engine": "flink", "clusters": self.clusters(), "jobs": [job]}
        path = self.folder / "spec.json"
        path.write_text(json.dumps(plain))
        return path

    def running(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, cluster in (("old", self.here), ("new", self.there)):
            jobs = cluster.ask("/jobs/overview")["jobs"]
            found[name] = sum(job["state"] in ALIVE for job in jobs)
        return found

    def clear(self) -> None:
        for cluster in (self.here, self.there):
            for job in cluster.ask("/jobs/overview")["jobs"]:
                if job["state"] in ALIVE:
                    cluster.ask(f"/jobs/{job['jid']}?mode=cancel", {}, "PATCH")
        until(lambda: sum(self.running().values()) == 0)


@dataclass(frozen=True)
class Kind:
    """A way to fail. `words` are what the program is given beside its own; `known`: the spec says
    how the old job is started again. `expected` is what has to come of it: `kept` (it never
    stops), `back` (it runs again where it was), `down` (the first word says so).
    """

    name: str
    expected: str
    words: tuple[str, ...] = ()
    known: bool = True
    mode: str = "open"
    more: Callable[[Place], dict[str, Any]] = lambda place: {}


def check(place: Place) -> dict[str, Any]:
    return {"submit": {**place.submit(), "submit_check": "echo no such flag; exit 2"}}


def full(place: Place) -> dict[str, Any]:
    blocked = place.folder / "blocked"
    blocked.write_text("a file, and no folder")
    return {"new_savepoint_path": str(blocked / "new")}


KINDS = (
    Kind("the program refuses its arguments", "kept", ("--keys", "none")),
    Kind("the same, and no source_submit", "kept", ("--keys", "none"), known=False),
    Kind("submit_check refuses", "kept", more=check),
    Kind("the image cannot be written", "back", more=full),
    Kind("the target refuses the start", "back", mode="refuses"),
    Kind("the same, and no source_submit", "back", mode="refuses", known=False),
    Kind("the job fails at its first record", "back", ("--fails-at", "1")),
    Kind("other uids than the savepoint has", "back", ("--uids", "false")),
    Kind("the same, and no source_submit", "down", ("--uids", "false"), known=False),
    Kind("the target dies at the start", "down", mode="dies"),
)


@dataclass(frozen=True)
class Round:
    kind: str
    killed: str
    ended: str
    exit_code: int
    first_words: str
    seconds_down: float
    wrong: str


def stateshift(*words: object, kill_at: tuple[Path, int] | None = None) -> tuple[int, str]:
    """Run a command; kill it once the journal has so many records."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stateshift", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    while kill_at is not None and process.poll() is None:
        journal, records = kill_at
        if journal.exists() and journal.read_bytes().count(b"\n") >= records:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.02)
    _, said = process.communicate()
    error = next((line for line in said.splitlines() if line.startswith("error: ")), "")
    return process.returncode, error.removeprefix("error: ")


def one(place: Place, kind: Kind, record: int | None) -> Round:
    id = place.start()
    place.proxy.mode = kind.mode
    watch = Watch(place.written)
    workdir = place.folder / "run"
    kill_at = None if record is None else (workdir / "journal", record)
    with watch:
        code, error = stateshift(
            "apply", place.spec(id, kind), "--yes", "--workdir", workdir, kill_at=kill_at
        )
        killed = f"at record {record}" if code == -signal.SIGKILL else "-"
        if code == -signal.SIGKILL and (workdir / "journal").exists():
            code, error = stateshift("resume", workdir)
        running = place.running()
        if running["old"]:
            before = len(place.written())
            until(lambda: len(place.written()) > before + 20)
    place.proxy.mode = "open"
    is_down = error.startswith(DOWN)
    ended = "down" if is_down else ("kept" if place.here.state(id) in ALIVE else "back")
    wrong = []
    if running["old"] + running["new"] > 1:
        wrong.append("two jobs run")
    if running["old"] == 0 and not is_down:
        wrong.append("down without a word")
    if kind.expected != "down" and ended not in (kind.expected, "kept"):
        wrong.append(f"{ended}, and not {kind.expected}")
    place.clear()
    found = place.written()
    wrong += faults(found, KEYS, 0, len(found))[:2]
    return Round(
        kind.name, killed, ended, code, error[:60], watch.longest, "; ".join(map(str, wrong))
    )


class Watch:
    """The longest time in which nothing was written."""

    def __init__(self, written: Callable[[], list[Any]]) -> None:
        self._written, self._over = written, threading.Event()
        self.longest = 0.0

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        count, since = len(self._written()), time.monotonic()
        while not self._over.wait(0.2):
            now = len(self._written())
            self.longest = max(self.longest, time.monotonic() - since)
            if now != count:
                count, since = now, time.monotonic()


def moves(clusters: tuple[Cluster, Cluster], folder: Path, rounds: int) -> Iterator[Round]:
    dice = random.Random(51)
    proxy = Proxy(clusters[1].url)
    for number in range(rounds):
        here = folder / f"move-{number}"
        here.mkdir()
        kind = KINDS[number % len(KINDS)]
        record = dice.randint(5, 30) if number % 3 == 2 else None
        made = one(Place(*clusters, proxy, here), kind, record)
        print(number, made, flush=True)
        yield made
        shutil.rmtree(here, ignore_errors=True)


def cron(clusters: tuple[Cluster, Cluster], folder: Path, seconds: float) -> dict[str, Any]:
    """Three jobs on one of two clusters, and a target that refuses every second start."""
    folder.mkdir()
    proxy = Proxy(clusters[1].url)
    proxy.mode = "every second"
    place = Place(*clusters, proxy, folder)
    jobs, watches = [], {}
    for name, rate in (("fraud", 60), ("orders", 50), ("payments", 35)):
        words = [
            *("--counters", name, "--keys", str(KEYS), "--name", name, "--checkpoint-ms", "300"),
            *("--output", str(folder / "out"), "--per-second", str(rate), "--slow-us", "10000"),
        ]
        place.arguments = words
        place.here.run("jobs.Count", *words, parallelism=1)
        submit = {**place.submit(), "parallelism": 1}
        taken = str(folder / "taken")
        jobs.append(
            {"name": name, "source_cluster": "old", "target_directory": taken, "submit": submit}
        )
        watches[name] = Watch(lambda name=name: lines(folder / "out" / name))
    until(lambda: all(lines(folder / "out" / name) for name in watches))
    images = {name: {"images": str(folder / name / "{job}" / "{move}")} for name in ("old", "new")}
    plain = {"version": 1, "engine": "flink", "clusters": place.clusters(), "jobs": jobs}
    spec = folder / "spec.json"
    policy = {"runs": 1, "cool_down": 30, "remembered": DAY, "idle_below": 0.01}

    def change_spec(number: int) -> None:
        """Another spec: a move that failed under the one before may be tried again."""
        throttle = {"bytes_per_second": 1e9 + number}
        rebalance = {"clusters": images, **policy}
        spec.write_text(json.dumps({**plain, "throttle": throttle, "rebalance": rebalance}))

    def rebalance(*words: str) -> int:
        code, error = stateshift(
            *("rebalance", spec, "--once", "--yes", "--sample", "15s"),
            *("--set", "stabilization.interval=20"),
            *("--workdir", folder / "cron", *words),
        )
        codes[code] += 1
        print("cron", *words, code, error[:110], dict(place.running()), flush=True)
        time.sleep(15)
        return code

    codes: Counter[int] = Counter()
    until_then = time.monotonic() + seconds
    specs = 0
    refused_most = moved = 0
    with ExitStack() as stack:
        for watch in watches.values():
            stack.enter_context(watch)
        while time.monotonic() < until_then:
            specs += 1
            change_spec(specs)
            refused = proxy.refused
            for _ in range(RUNS_OF_A_SPEC):
                rebalance()
            refused_most = max(refused_most, proxy.refused - refused)
            moved += place.running()["new"]
            rebalance("--drain", "new")
            rebalance("--uncordon", "new")
    homes = dict(place.running())
    place.clear()
    faulty = {}
    for name in watches:
        found = lines(folder / "out" / name)
        faulty[name] = faults(found, KEYS, 0, len(found))[:2]
    longest = {name: round(watch.longest, 1) for name, watch in watches.items()}
    wrong = [f"{name}: {found}" for name, found in faulty.items() if found]
    if refused_most > len(jobs):
        wrong.append(
            f"{refused_most} moves were refused of one spec, and there are {len(jobs)} jobs"
        )
    if not moved or not proxy.refused:
        wrong.append("no move was made, or none was refused: this shows nothing")
    if sum(homes.values()) != len(jobs):
        wrong.append(f"not every job runs in the end: {homes}")
    if max(longest.values()) > RESTART_SECONDS_MAX:
        wrong.append("a job was down for longer than a restart takes")
    return {
        "runs": sum(codes.values()),
        "specs, one after the other": specs,
        "exit codes": dict(codes),
        "moves that were refused by the target": proxy.refused,
        "of one spec at most": refused_most,
        "jobs that were moved to the target, and drained from it": moved,
        "longest without output, s": longest,
        "jobs at the end": homes,
        "wrong": wrong,
    }


@contextmanager
def flinks(folder: Path) -> Iterator[tuple[Cluster, Cluster]]:
    if "STATESHIFT_FLINK_A" in os.environ:
        lib = Path(os.environ["STATESHIFT_FLINK_A_LIB"])
        yield (
            Cluster(os.environ["STATESHIFT_FLINK_A"], lib),
            Cluster(os.environ["STATESHIFT_FLINK_B"], lib),
        )
        return
    from tests.support.flink import cluster_of
    from tests.support.servers import group

    with group(folder, "flink-a", "flink-b") as servers:
        yield cluster_of(servers, "flink-a"), cluster_of(servers, "flink-b")


def page(rounds: list[Round], of_cron: dict[str, Any] | None) -> str:
    head = "| kind | killed | ended | exit code | longest without output, s | wrong |\n|---|---|---|---|---|---|"
    rows = [
        f"| {r.kind} | {r.killed} | {r.ended} | {r.exit_code} | {r.seconds_down:.1f} | {r.wrong or '-'} |"
        for r in rounds
    ]
    text = [
        "# Moves that fail\n",
        f"`./scripts/bench/failing-moves`, {time.strftime('%Y-%m-%d')}.\n",
    ]
    if rounds:
        bad = sum(bool(r.wrong) for r in rounds)
        text += [
            f"{len(rounds)} failing moves of a real Flink job, {bad} of them wrong.\n",
            head,
            *rows,
        ]
    if of_cron is not None:
        text += ["\n## `rebalance` by cron, a target that fails every second time\n"]
        text += [f"* {key}: {value}" for key, value in of_cron.items()]
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cron-seconds", type=float, default=900.0)
    parser.add_argument("--only", choices=("moves", "cron"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stateshift-failing-") as top:
        folder = Path(top)
        with flinks(folder) as clusters:
            rounds: list[Round] = []
            of_cron = None
            if asked.only != "cron":
                rounds = list(moves(clusters, folder, asked.rounds))
            if asked.only != "moves":
                of_cron = cron(clusters, folder / "cron", asked.cron_seconds)
    PAGE.write_text(page(rounds, of_cron), "utf-8")
    print(PAGE.read_text("utf-8"))
    return 1 if any(r.wrong for r in rounds) or (of_cron and of_cron["wrong"]) else 0


if __name__ == "__main__":
    sys.exit(main())
