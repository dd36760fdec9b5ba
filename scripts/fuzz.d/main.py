"""The command `scripts/fuzz`: starts one process per format, keeps its time, and tells what came
of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import ledger  # noqa: E402

from tests.fuzz.targets import Target, all_targets  # noqa: E402

FOUND = ROOT / "tests" / "fuzz" / "found"
PAGE = FOUND.parent / "README.md"
EDGES = re.compile(r"cov: (\d+) ft: \d+ corp: (\d+)/")
SLICE_SECONDS = 300.0  # libFuzzer itself grows by 2 KB an input


def main() -> int:
    wanted = _arguments()
    targets = all_targets()
    unknown = [name for name in wanted.formats if name not in targets]
    if unknown:
        print(f"no format is called {unknown[0]!r}: scripts/fuzz --list names all", file=sys.stderr)
        return 2
    top = Path(wanted.corpus)
    chosen = [targets[name] for name in wanted.formats] or list(targets.values())
    if wanted.table:
        PAGE.write_text(ledger.table(targets.values(), top, PAGE.read_text()))
        print(PAGE.relative_to(ROOT))
        return 0
    if wanted.again:
        return sum(_again(target, top / target.name) for target in chosen) and 1
    if wanted.list or not (wanted.formats or wanted.all):
        _list(targets.values(), top)
        return 0
    return _fuzz_all(chosen, top, 60 * wanted.minutes, bool(wanted.all))


def _arguments() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        "scripts/fuzz", description="Fuzz the readers of formats, guided by coverage."
    )
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="which ones (see --list)")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="CPU-minutes for each format (default: 10)"
    )
    parser.add_argument(
        "--all", action="store_true", help="all formats that have had fewer minutes on this code"
    )
    parser.add_argument(
        "--list", action="store_true", help="the formats, and how long each was fuzzed"
    )
    parser.add_argument(
        "--again", action="store_true", help="run what broke something; what no longer does is kept"
    )
    parser.add_argument(
        "--table", action="store_true", help=f"write {PAGE.relative_to(ROOT)} from what was run"
    )
    place = os.environ.get("STATESHIFT_FUZZ_DIR") or str(cache / "stateshift-fuzz")
    parser.add_argument(
        "--corpus", default=place, help="where inputs are kept (default: %(default)s)"
    )
    return parser.parse_args()


def _list(targets: object, top: Path) -> None:
    print(f"{'format':20}{'minutes':>9}{'now':>7}{'executions':>13}  what it is about")
    for target in targets:  # type: ignore[attr-defined]
        past = ledger.read(top / target.name)
        runs = sum(s.executions for s in past)
        print(
            f"{target.name:20}{ledger.minutes(past):9.1f}{ledger.minutes(past, ledger.sign_of(target)):7.1f}"
            f"{runs:13,}  {', '.join(target.modules)[:70]}"
        )


def _fuzz_all(targets: list[Target], top: Path, seconds: float, going_on: bool) -> int:
    broken = 0
    for target in targets:
        folder = top / target.name
        past = 60 * ledger.minutes(ledger.read(folder), ledger.sign_of(target)) if going_on else 0.0
        while past < seconds - 1:
            session = _session(target, folder, min(seconds - past, SLICE_SECONDS))
            past += max(session.cpu_seconds, 1.0)
            _tell(target, folder, session)
            if not session.executions and session.ended.startswith("exit"):
                return 1  # it did not even start
        broken += len(list((folder / "broken").glob("*.input"))) if folder.exists() else 0
    if broken:
        print(
            f"{broken} inputs break something: see the folders `broken`; scripts/fuzz "
            "--again runs them once more"
        )
    return int(broken > 0)


def _session(target: Target, folder: Path, seconds: float) -> ledger.Session:
    """One process, until its time is up or something ends it."""
    _prepare(target, folder)
    (folder / "now.json").unlink(missing_ok=True)
    code = _commit(), ledger.sign_of(target)  # as it is now: somebody may be mending it meanwhile
    command = [
        sys.executable,
        str(Path(__file__).with_name("engine.py")),
        target.name,
        str(folder),
        str(seconds),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            print(f"interrupted; scripts/fuzz {target.name} goes on from here", file=sys.stderr)
            raise SystemExit(130) from None
        finally:
            session = _recorded(folder, code, process.returncode)
    return session


def _prepare(target: Target, folder: Path) -> None:
    for name in ("corpus", "broken"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    kept = FOUND / target.name
    seeds = [
        *target.seeds(),
        *(path.read_bytes() for path in sorted(kept.glob("*")) if kept.exists()),
    ]
    for seed in seeds:
        place = folder / "corpus" / sha1(seed).hexdigest()
        if not place.exists():
            place.write_bytes(seed)


def _recorded(folder: Path, of: tuple[str, str], code: int | None) -> ledger.Session:
    place = folder / "now.json"
    now = json.loads(place.read_text()) if place.exists() else {}
    told = EDGES.findall((folder / "log").read_text(errors="replace"))
    artifacts = [
        path for kind in ("crash", "timeout", "oom", "leak") for path in folder.glob(f"{kind}-*")
    ]
    for path in artifacts:  # ended by libFuzzer: kept beside the others
        path.replace(folder / "broken" / f"{path.name}.input")
    session = ledger.Session(
        commit=of[0],
        sign=of[1],
        **{
            key: now.get(key, 0)
            for key in (
                "cpu_seconds",
                "executions",
                "broken",
                "slowest_ms",
                "largest_growth_mib",
                "peak_mib",
            )
        },
        edges_before=int(told[0][0]) if told else 0,
        edges_after=int(told[-1][0]) if told else 0,
        inputs=int(told[-1][1]) if told else 0,
        ended="time"
        if code == 0
        else artifacts[0].name.split("-")[0]
        if artifacts
        else f"exit {code}",
    )
    ledger.add(folder, session)
    return session


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _tell(target: Target, folder: Path, session: ledger.Session) -> None:
    signs = [path.with_suffix(".txt") for path in sorted((folder / "broken").glob("*.input"))]
    print(
        f"{target.name}: {session.cpu_seconds / 60:.1f} CPU-minutes, "
        f"{session.executions:,} executions, edges "
        f"{session.edges_before:,} -> {session.edges_after:,}, {session.inputs:,} inputs; slowest "
        f"{session.slowest_ms} ms, peak {session.peak_mib} MiB; {session.broken} broke "
        f"something, in {len(signs)} ways",
        flush=True,
    )
    if session.ended != "time":
        print(f"  ended by {session.ended}; the end of {folder / 'log'} tells more", flush=True)
    for path in signs:
        what = (
            path.read_text().splitlines()[0]
            if path.exists()
            else "a hang, or a crash of native code"
        )
        print(f"  {path.with_suffix('.input')}: {what}", flush=True)


def _again(target: Target, folder: Path) -> int:
    """How many inputs still break something. Those that do not any more are kept as tests."""
    from tests.fuzz.oracles import affordable

    still = 0
    for path in sorted((folder / "broken").glob("*.input")):
        try:
            affordable(target.run, path.read_bytes())
        except Exception as error:
            still += 1
            print(
                f"{target.name}: {path} ({path.stat().st_size} bytes): "
                f"{type(error).__name__}: {str(error)[:200]}"
            )
        else:
            kept = FOUND / target.name / path.stem
            kept.parent.mkdir(parents=True, exist_ok=True)
            path.replace(kept)
            print(f"{target.name}: mended, kept as {kept.relative_to(ROOT)}")
            path.with_suffix(".txt").unlink(missing_ok=True)
    return still


if __name__ == "__main__":
    sys.exit(main())
