"""The demo, told while it happens: a job with state runs, moves while its data keeps coming, and
counts on.

    1  the job is started where it lives, and gets ten seconds of data
    2  `stateshift plan`   what a move would do
    3  `stateshift apply`  stops the job, moves its state, starts it on the target; data keeps
                           coming
    4  the rest of the data; then the same data once more, through a job that was never moved
    5  both results, side by side

With `--cluster` the job goes from one standalone Spark to another, its state from one HDFS to
another. Ends with 0 if both results are equal, and with 1 if they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
from places import Clusters, Folders, Places

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS_OF_DATA = 10.0
SECONDS_BETWEEN_FILES = 0.25
SECONDS_BETWEEN_LINES = 15.0
FILES_AFTERWARDS = 12

Records = list[dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="between the clusters that scripts/servers has started",
    )
    options = parser.parse_args()
    return play(options.keep, demo, Clusters if options.cluster else None)


def play(
    keep: bool,
    demo: Callable[[Path, Any], bool],
    clusters: Callable[[str], Places] | None = None,
) -> int:
    """Run a demo in a folder of its own; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="stateshift-demo-"))
    os.environ |= {"DEMO_DIR": str(folder), "DEMO_NAME": folder.name}
    places = Folders(folder) if clusters is None else clusters(folder.name)
    began = time.monotonic()
    try:
        equal = demo(folder, places)
    finally:
        places.end_jobs()
        if keep:
            print(f"\neverything is still in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{'Equal' if equal else 'NOT EQUAL'}, after {time.monotonic() - began:.0f} seconds.")
    return 0 if equal else 1


def logged(folder: Path) -> int:
    """How much the jobs have logged."""
    return sum(log.stat().st_size for log in folder.rglob("*.log"))


def waiting(folder: Path, places: Places) -> Callable[[Callable[[], bool], str | None], None]:
    """Return the function that waits for something of the jobs in this folder."""

    def wait_until(done: Callable[[], bool], otherwise: str | None) -> None:
        """Wait for it, and say so meanwhile. Where it does not come, say `otherwise` and end, or go
        on where that is left out. As long as jobs write to their logs, it may still come: a slow
        machine takes longer than another.
        """
        began = said = alive = time.monotonic()
        written = -1
        while not done():
            now, bytes_now = time.monotonic(), logged(folder)
            if bytes_now > written:
                written, alive = bytes_now, now
            waited = now - began
            idle = waited if otherwise is None else now - alive
            if idle > places.seconds_max or (waited > 5 and places.ended()):
                if otherwise is None:
                    return
                logs = "\n".join(tail(log) for log in folder.rglob("*.log"))
                raise SystemExit(
                    f"{otherwise} after {waited:.0f} s, and nobody has written to a log for "
                    f"{now - alive:.0f} s\n{logs}"
                )
            if now - said > SECONDS_BETWEEN_LINES:
                said = now
                say(f"{otherwise or 'the job has not ended'} after {waited:.0f} s: waiting")
            time.sleep(0.1)

    return wait_until


def demo(folder: Path, places: Places) -> bool:
    print("A running Spark job moves to another place, and its counts do not notice.")

    wait_until = waiting(folder, places)
    with Orders(folder / "input") as orders:
        title(
            "1",
            (
                f"A job with two stateful operators starts, and gets {SECONDS_OF_DATA:.0f} "
                "seconds of data."
            ),
        )
        stateshift("apply", places.first, "--yes", "--workdir", str(folder / "runs" / "first"))
        wait_until(lambda: places.committed() >= 2, "the job has not committed a batch")
        time.sleep(SECONDS_OF_DATA)
        say(
            f"{orders.written * data.ORDERS_PER_FILE} orders so far; the job is running "
            "and has open windows"
        )

        title("2", "What would a move do? Nothing changes yet.")
        stateshift("plan", places.move)

        title("3", "Move it. Orders keep coming all the while.")
        before = orders.written
        stateshift("apply", places.move, "--yes", "--workdir", str(folder / "runs" / "move"))
        say(f"{(orders.written - before) * data.ORDERS_PER_FILE} orders came in meanwhile")
    orders.finish()

    title("4", "The rest of the data; and all of it once more, through a job that is never moved.")
    run_unmoved(folder)
    unmoved = results(folder / "unmoved")
    wait_until(lambda: len(results(folder / "moved")["joined"]) >= len(unmoved["joined"]), None)
    wait_until(lambda: len(results(folder / "moved")["counts"]) >= len(unmoved["counts"]), None)
    places.end_jobs()

    title("5", "Side by side: orders per minute and their worth; orders with their payment.")
    return side_by_side(unmoved, results(folder / "moved"))


class Orders:
    """Writes the data's files, one after the other, as long as the block lasts, and then the
    rest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def __enter__(self) -> Orders:
        self._write_next()  # the job finds its folders
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        for _ in range(FILES_AFTERWARDS):
            self._write_next()
        data.write_last(self.folder, self.written)

    def _write_on(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_FILES):
            self._write_next()

    def _write_next(self) -> None:
        data.write(self.folder, self.written)
        self.written += 1


def stateshift(*arguments: str) -> None:
    """The command line, as a user types it; what it says is shown."""
    print(f"\n    $ stateshift {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "stateshift", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line.rstrip()}", flush=True)
    if process.returncode != 0:
        raise SystemExit(f"stateshift {arguments[0]} ended with {process.returncode}")


def run_unmoved(folder: Path) -> None:
    """The same application over the same input, all at once, with a checkpoint and an output of
    its own.
    """
    environment = {
        **os.environ,
        "STATESHIFT_JOB": "demo",
        "STATESHIFT_CHECKPOINT": str(folder / "never-moved"),
    }
    places = ["--input", str(folder / "input"), "--output", str(folder / "unmoved"), "--once"]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    command = [
        *submit,
        "--conf",
        "spark.ui.enabled=false",
        str(ROOT / "scripts" / "demo.d" / "job.py"),
        *places,
    ]
    log = folder / "unmoved.log"
    with log.open("w") as out:
        ended = subprocess.run(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if ended.returncode:
        raise SystemExit(f"the job that is never moved failed:\n{tail(log)}")
    say(
        "the job that is never moved has counted "
        f"{len(results(folder / 'unmoved')['joined'])} orders"
    )


def results(folder: Path) -> dict[str, Records]:
    """What the sink holds, over all batches."""
    return {
        name: [
            json.loads(line)
            for path in sorted((folder / name).glob("*.json"))
            for line in path.open()
        ]
        for name in ("counts", "joined")
    }


def side_by_side(unmoved: dict[str, Records], moved: dict[str, Records]) -> bool:
    left, right = per_minute(unmoved["counts"]), per_minute(moved["counts"])
    print(f"\n    {'minute':<8}{'never moved':>24}{'moved':>24}")
    for minute in sorted(left.keys() | right.keys()):
        row(minute[11:16], amount(left.get(minute)), amount(right.get(minute)))
    for name, wanted in (("paid", True), ("not paid", False)):
        counts = [
            sum((r["paid"] is not None) == wanted for r in both["joined"])
            for both in (unmoved, moved)
        ]
        row(name, f"{counts[0]} orders", f"{counts[1]} orders")
    same = {name: as_bag(unmoved[name]) == as_bag(moved[name]) for name in unmoved}
    say(f"record by record: counts {word(same['counts'])}, joined orders {word(same['joined'])}")
    return all(same.values()) and bool(unmoved["counts"]) and bool(unmoved["joined"])


def per_minute(counts: Records) -> dict[str, tuple[int, int]]:
    minutes: dict[str, tuple[int, int]] = {}
    for record in counts:
        orders, amount = minutes.get(record["minute"], (0, 0))
        minutes[record["minute"]] = (orders + record["orders"], amount + record["amount"])
    return minutes


def as_bag(records: Records) -> Counter[str]:
    """Records without their order, but with how often each is there."""
    return Counter(json.dumps(record, sort_keys=True) for record in records)


def amount(minute: tuple[int, int] | None) -> str:
    return "nothing" if minute is None else f"{minute[0]} orders, {minute[1]:,}"


def row(name: str, left: str, right: str) -> None:
    print(f"    {name:<8}{left:>24}{right:>24}   {'=' if left == right else '!'}")


def word(same: bool) -> str:
    return "equal" if same else "DIFFERENT"


def title(number: str, text: str) -> None:
    print(f"\n{number}  {text}", flush=True)


def say(text: str) -> None:
    print(f"\n    {text}", flush=True)


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


if __name__ == "__main__":
    sys.exit(main())
