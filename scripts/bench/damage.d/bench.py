"""Damages golden images, asks `verify --deep` and `apply` about each, and writes down what they
missed.

The images, the mutations, the oracle and the judges are tests/damage: the default test and the
fuzzing of commands use the same. Here is what a person asks for, and the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import page  # noqa: E402
from held import cache  # noqa: E402
from verdict_log import VerdictLog, code_digest  # noqa: E402

from tests.damage import images, pool  # noqa: E402
from tests.damage.mutations import made  # noqa: E402
from tests.damage.verdicts import FAILURES, Verdict, verdict_of  # noqa: E402

RESULTS = ROOT / "scripts" / "bench" / "results"
MUTATIONS, FULL = 2_000, 20_000
SPARK_SAMPLE, FLINK_SAMPLE = 200, 100


def main() -> int:
    asked = arguments()
    if asked.one:
        return one(asked.one, asked.keep)
    ids = chosen(asked.mutations, asked.only)
    verdicts = list(judged(ids, asked.workers, asked.no_apply))
    lines = page.written(verdicts)
    if asked.engine:
        lines += engines(asked.engine, asked.every_yes)
    print("\n".join(lines))
    if not asked.only:
        write(verdicts, lines)
    return failed(verdicts) or int(any("| WRONG YES |" in line for line in lines))


def engines(wanted: str, every_yes: int | None) -> list[str]:
    """What real engines say to a sample, or Spark to every yes among so many."""
    import flink_engine
    import held
    import spark_engine

    lines: list[str] = []
    if wanted in ("spark", "both"):
        found = spark_engine.held_against(every_yes or SPARK_SAMPLE, every_yes is not None)
        lines += held.written(found, "Spark 4.3.0")
    if wanted in ("flink", "both"):
        lines += held.written(flink_engine.held_against(FLINK_SAMPLE), "Flink 2.3.0")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/bench/damage", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--full",
        dest="mutations",
        action="store_const",
        const=FULL,
        default=MUTATIONS,
        help=f"{FULL:,} mutations instead of {MUTATIONS:,}",
    )
    parser.add_argument("--mutations", type=int, help="so many")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="images whose names hold this; no page is written",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that judge (default: 2)")
    parser.add_argument("--no-apply", action="store_true", help="ask `verify --deep` alone")
    parser.add_argument(
        "--engine",
        nargs="?",
        const="both",
        choices=("spark", "flink", "both"),
        help="give a sample to a real Spark and a real Flink",
    )
    parser.add_argument(
        "--every-yes",
        type=int,
        metavar="N",
        help="with --engine: give Spark all of N mutations that we say yes to",
    )
    parser.add_argument("--one", metavar="ID", help="one mutation, as it is named in damage.jsonl")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="with --one: write its files there"
    )
    return parser.parse_args()


def chosen(mutations: int, only: str) -> list[str]:
    """So many of every image, rounded up; image by image, since a judge keeps what it has read
    of one."""
    every = [*images.names(), *images.variants()]
    names = [name for name in every if only in name]
    each = -(-mutations // max(len(every), 1))
    return [f"{name}#{number}" for name in names for number in range(each)]


def judged(ids: list[str], workers: int, without_apply: bool) -> Iterable[Verdict]:
    """Return every verdict: those that an earlier run over the same code left, then the others."""
    ask = pool.judge if without_apply else pool.judge_and_apply
    log = VerdictLog.opened(cache(), f"{code_digest(ROOT)}{'-verify' if without_apply else ''}")
    known = [log.verdicts[id_] for id_ in ids if id_ in log.verdicts]
    if known:
        print(f"{len(known):,} were judged before, over the same code", file=sys.stderr)
    yield from known
    missing = [id_ for id_ in ids if id_ not in log.verdicts]
    began = said = time.monotonic()
    for number, verdict in enumerate(pool.verdicts(missing, workers, ask), 1):
        log.add(verdict)
        if time.monotonic() - said > 15:
            said = time.monotonic()
            progress = f"{number:,} of {len(missing):,} in {said - began:.0f} s"
            print(progress, file=sys.stderr, flush=True)
        yield verdict


def failed(verdicts: Iterable[Verdict]) -> int:
    verdicts = list(verdicts)
    wrong = [one for one in verdicts if one.result in FAILURES]
    return int(bool(wrong) or any(page.is_wrong_apply(one) for one in verdicts))


def write(verdicts: list[Verdict], lines: list[str]) -> None:
    (RESULTS / "damage.md").write_text("\n".join(lines) + "\n")
    wrong = [one for one in verdicts if one.result in FAILURES or page.is_wrong_apply(one)]
    again = {one.id: f"./scripts/bench/damage --one '{one.id}'" for one in wrong}
    rows = [
        {**one.as_json(), "again": again[one.id]} for one in sorted(wrong, key=lambda one: one.id)
    ]
    (RESULTS / "damage.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(
        f"{len(rows):,} failures in {(RESULTS / 'damage.jsonl').relative_to(ROOT)}", file=sys.stderr
    )


def one(id_: str, keep: Path | None) -> int:
    """Everything about a single mutation."""
    verdict = verdict_of(id_, with_apply=True)
    print(json.dumps(verdict.as_json(), indent=2))
    if keep is not None:
        name, _, number = id_.rpartition("#")
        for location, content in made(images.image(name), int(number)).files.items():
            place = keep / location.removeprefix("file:///")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        print(f"its files are below {keep}", file=sys.stderr)
    return failed([verdict])


if __name__ == "__main__":
    sys.exit(main())
