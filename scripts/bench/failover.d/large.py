"""A standby of a large state: see `failover-large`.

    python large.py [--gb 20] [--minutes 3]      measure, and write the page
    python large.py --play FOLDER                write a batch each ten seconds, until killed

The bytes are Spark's, HDFS-backed: a snapshot of random values and a delta a batch for each of 200
partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in ("", "scripts/bench"):
    sys.path.insert(0, str(ROOT / folder))

from pages import put_down, wrapped  # noqa: E402
from stages import stages_of  # noqa: E402

from stateshift.formats.spark import state_files  # noqa: E402
from tests.support.checkpoints import COMMIT, Checkpoint  # noqa: E402

PAGE = ROOT / "scripts" / "bench" / "results" / "failover-large.md"
SHARDS = 200
VALUE_BYTES, DELTA_BYTES = 1 << 16, 1 << 13
BATCH_SECONDS = 10.0
SECONDS_MAX = 3600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gb", type=float, default=20.0)
    parser.add_argument("--minutes", type=float, default=3.0, help="for which the job is followed")
    parser.add_argument("--play", type=Path)
    options = parser.parse_args()
    if options.play is not None:
        play(options.play)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="stateshift-large-"))
    try:
        write_page(measure(folder, options.gb, options.minutes))
    finally:
        for path in folder.rglob("played.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


# ---- the played job


def put(path: Path, content: bytes) -> None:
    """Write a file whole, as Spark does."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_bytes(content)
    hidden.rename(path)


def records(count: int, size: int) -> Iterator[state_files.StateRecord]:
    for _ in range(count):
        yield state_files.StateRecord(os.urandom(16), os.urandom(size))


def begin(folder: Path, gb: float) -> None:
    """Write batch 0 with a state of that size."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    shape = Checkpoint(shards=SHARDS)
    put(folder / "metadata", shape.metadata())
    put(folder / "offsets" / "0", shape.offsets(0))
    count = max(1, round(gb * 1e9 / SHARDS / VALUE_BYTES))
    for shard in range(SHARDS):
        place = folder / "state" / "0" / str(shard)
        place.mkdir(parents=True)
        content = b"".join(state_files.encode_delta(list(records(count, VALUE_BYTES))))
        put(place / "1.snapshot", content)
        put(place / "1.delta", b"".join(state_files.encode_delta([])))
    put(folder / "commits" / "0", COMMIT)


def play(folder: Path) -> None:
    """Go on after the newest committed batch."""
    (folder / "played.pid").write_text(str(os.getpid()))
    shape = Checkpoint(shards=SHARDS)
    while True:
        batch = max(int(path.name) for path in (folder / "commits").glob("[0-9]*")) + 1
        began = time.monotonic()
        put(folder / "offsets" / str(batch), shape.offsets(batch))
        for shard in range(SHARDS):
            content = b"".join(state_files.encode_delta(list(records(1, DELTA_BYTES))))
            put(folder / "state" / "0" / str(shard) / f"{batch + 1}.delta", content)
        put(folder / "commits" / str(batch), COMMIT)
        time.sleep(max(0.0, began + BATCH_SECONDS - time.monotonic()))


# ---- what is measured


def measure(folder: Path, gb: float, minutes: float) -> dict[str, Any]:
    source, target = folder / "a" / "job", folder / "b" / "job"
    print(f"writing {gb} GB", file=sys.stderr)
    begin(source, gb)
    (folder / "b").mkdir()
    job = spec_of(folder, source, target)
    found: dict[str, Any] = {"gb": gb, "load": os.getloadavg()[0]}
    found["at"] = time.strftime("%Y-%m-%d %H:%M")
    player = started(source)
    words = ("apply", str(job), "--continuous", "--yes", "--workdir", str(folder / "run"))
    log = folder / "log"
    with log.open("w") as out:
        begun = time.time()
        feeder = subprocess.Popen(
            [sys.executable, "-m", "stateshift", *words], stdout=out, stderr=out
        )
        wait_for(lambda: "can be started from" in log.read_text(), feeder, log)
        found["first_image"] = time.time() - begun
        wait_for(lambda: newest(source) - newest(target) < 10, feeder, log)
        found |= followed(feeder.pid, source, target, minutes)
        player.kill()
        lost, real = time.time(), newest(source)
        (folder / "a").rename(folder / "dark")
        found |= failed_over(folder, target)
        feeder.wait(120)
    found["feeder"] = feeder.returncode
    found["batches_lost"] = real - found["epoch"]
    written = (folder / "dark" / "job" / "commits" / str(found["epoch"])).stat().st_mtime
    found["real_seconds"] = lost - written
    found["told_seconds"] -= found["claimed_at"] - lost
    return found


def spec_of(folder: Path, source: Path, target: Path) -> Path:
    script = folder / "job.sh"
    script.write_text(
        f'"{sys.executable}" "{__file__}" --play "${{STATESHIFT_LOCATION#file://}}" '
        "> /dev/null 2>&1 &\n"
    )
    find = folder / "find.sh"
    find.write_text(
        'f="${STATESHIFT_LOCATION#file://}/played.pid"\n'
        'if [ -e "$f" ] && kill -0 "$(cat "$f")" 2> /dev/null; then echo running; '
        "else echo absent; fi\n"
    )
    cluster = {"kind": "command", "find": f"bash {find}", "submit": f"bash {script}"}
    job = {
        "name": "large",
        "checkpoint_location": f"file://{source}",
        "remote_location": f"file://{target}",
        "mode": "warm",
        "cutover": "never",
        "target_cluster": "b",
        "submit": {"command": "large"},
        "waive": ["paths-stay"],
    }
    spec = {"version": 1, "engine": "spark", "clusters": {"b": cluster}, "jobs": [job]}
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    return path


def started(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--play", str(folder)])


def newest(folder: Path) -> int:
    numbers = [int(path.name) for path in (folder / "commits").glob("[0-9]*")]
    return max(numbers, default=-1)


def wait_for(is_so: Any, feeder: subprocess.Popen[bytes], log: Path) -> None:
    until = time.time() + SECONDS_MAX
    while not is_so():
        if time.time() > until or feeder.poll() is not None:
            raise SystemExit(f"the standby came to nothing:\n{log.read_text()[-3000:]}")
        time.sleep(0.5)


def followed(pid: int, source: Path, target: Path, minutes: float) -> dict[str, Any]:
    """Return what the standby has read while the job has written so much, and its memory."""
    read, first = bytes_read(pid), newest(source)
    behind, until = [], time.time() + 60 * minutes
    while time.time() < until:
        behind.append(newest(source) - newest(target))
        time.sleep(1.0)
    changed = (newest(source) - first) * SHARDS * DELTA_BYTES
    rss = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    return {
        "read_ratio": (bytes_read(pid) - read) / changed,
        "behind_most": max(behind),
        "behind_median": sorted(behind)[len(behind) // 2],
        "rss_mib": int(rss) / 1024,
    }


def bytes_read(pid: int) -> int:
    return int(Path(f"/proc/{pid}/io").read_text().partition("rchar:")[2].split()[0])


def failed_over(folder: Path, target: Path) -> dict[str, Any]:
    begun, workdir = time.time(), folder / "failover"
    words = ("failover", f"file://{target}", "--primary-is-down", "--yes", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "stateshift", *words, "--workdir", str(workdir)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"failover ended with {done.returncode}:\n{done.stderr[-3000:]}")
    told = json.loads(done.stdout)["report"]["jobs"][0]["failover"]
    stages = stages_of(workdir, begun)
    return {
        "epoch": told["epoch"],
        "told_seconds": told["rpo"]["seconds"],
        "rto": told["rto_seconds"],
        "claim": stages["claim"],
        "claimed_at": stages["claimed_at"],
    }


def write_page(found: dict[str, Any]) -> None:
    lines = ["# A standby of a large state", ""]
    lines += wrapped(
        f"`./scripts/bench/failover-large` on 2 cores and 24 GB, Linux, {found['at']}, at a load "
        f"of {found['load']:.1f}: a played job writes a batch each {BATCH_SECONDS:.0f} s, "
        f"{SHARDS} deltas of {DELTA_BYTES // 1024} KiB, beside {found['gb']:g} GB of snapshots on "
        "a local disk; the standby is on the same disk. In the end the job is killed, its "
        "checkpoint is taken away, and `failover` is called at once."
    )
    rows = {
        "first image: copied and read to its end, s": f"{found['first_image']:.0f}",
        "then read by the standby ÷ written by the job": f"{found['read_ratio']:.2f}",
        "batches behind: median, most": f"{found['behind_median']}, {found['behind_most']}",
        "memory of the standby (RSS), MiB": f"{found['rss_mib']:.0f}",
        "batches lost": str(found["batches_lost"]),
        "lost, told, s": f"{found['told_seconds']:.2f}",
        "lost, really, s": f"{found['real_seconds']:.2f}",
        "failover until it has claimed the standby, s": f"{found['claim']:.1f}",
        "failover until the job's first commit, s": f"{found['rto']:.1f}",
    }
    lines += ["", "| what | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    put_down(PAGE, lines)


if __name__ == "__main__":
    main()
