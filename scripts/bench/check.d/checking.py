"""A check beside Spark's own start, and its verdicts beside what real engines did.

python checking.py [--rounds 3]

Spark's start   a process that makes a session of Spark, and plans and runs one small batch
check           `stateshift check` of a file of one query, with its checkpoint; with --before
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "bench")]

from pages import put_down, reached, told, wrapped  # noqa: E402

from tests.check.corpus import BASES, CAUTIOUS, CHANGES, UNSEEN  # noqa: E402
from tests.check.outcomes import (  # noqa: E402
    AGREES,
    OF_FLINKS,
    OF_SPARKS,
    agrees_with_flink,
    agrees_with_spark,
    recorded_outcomes,
)
from tests.check.playing import GOLDEN, GROUND  # noqa: E402
from tests.check.test_compare import OUTCOMES, verdict  # noqa: E402

Outcomes = Mapping[str, Mapping[str, list[str | None]]]
PAGE = ROOT / "scripts" / "bench" / "results" / "check.md"
BOUND = 10.0  # seconds beyond Spark's own start
START = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(3).count())
"""


def seconds_of(words: list[str], code: int = 0) -> float:
    """How long a command takes."""
    begun = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return time.monotonic() - begun


def measured(rounds: int) -> dict[str, list[float]]:
    """Seconds of each, one after the other in each round."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, start = Path(folder) / "job.py", Path(folder) / "start.py"
        file.write_text(BASES["window"].script)
        start.write_text(START)
        image = str(GOLDEN / "window" / "checkpoint")
        check = [sys.executable, "-m", "stateshift", "check", image, "--with", str(file), "--stub"]
        commands = {
            "Spark's start": [sys.executable, str(start)],
            "check": [*check, "--", str(GROUND)],
            "check --before": [*check, "--before", str(file), "--", str(GROUND)],
        }
        for _ in range(rounds):
            for name, words in commands.items():
                seconds.setdefault(name, []).append(seconds_of(words))
    return seconds


def spark_rows() -> Iterator[tuple[str, str, str, str, bool]]:
    """Each pair of Spark: its name, the verdicts with the old code and without, the outcome, and
    whether they agree."""
    for name in CHANGES:
        word, error = OUTCOMES[name]
        known, alone = (verdict(name, before=before).verdict for before in (True, False))
        is_cautious = name in CAUTIOUS and known == "starts-but"
        agrees = known in AGREES[word] or is_cautious
        yield name, known, alone, f"{word} {error}".strip(), agrees


def other_sparks() -> Iterator[str]:
    """The lines of a table of the pairs on other Sparks: said, and what it did."""
    ways = recorded_outcomes(OF_SPARKS)
    yield from cells(
        ways, lambda cell: f"{cell[2]} / {cell[0]}" + (f", then {cell[3]}" if cell[3:] else "")
    )


def flinks() -> Iterator[str]:
    """The lines of a table of the pairs on each Flink: said by a rehearsal, and what it did."""
    yield from cells(
        recorded_outcomes(OF_FLINKS),
        lambda cell: f"{cell[0]} / {'starts' if cell[1] is None else 'refused'}",
    )


def cells(table: Outcomes, text: Callable[[list[str | None]], str]) -> Iterator[str]:
    """The lines of a table: a row a pair, a column a version."""
    versions = sorted(table)
    names = {name: None for version in versions for name in table[version]}
    yield f"| pair | {' | '.join(versions)} |"
    yield f"|{'---|' * (len(versions) + 1)}"
    for name in names:
        row = [table[version].get(name) for version in versions]
        shown = ["" if cell is None else text(cell) for cell in row]
        yield f"| {name} | {' | '.join(shown)} |"


def agreeing(table: Outcomes, agrees: Callable[[str, list[str | None]], bool]) -> str:
    """How many starts there were, and in how many the verdict agrees."""
    starts = [(name, cell) for pairs in table.values() for name, cell in pairs.items()]
    return f"{sum(agrees(*each) for each in starts)} of {len(starts)}"


def page(seconds: dict[str, list[float]]) -> Iterator[str]:
    """The lines of the page."""
    spark, flink = list(spark_rows()), recorded_outcomes(OF_FLINKS)
    others = recorded_outcomes(OF_SPARKS)
    right = sum(row[-1] for row in spark)
    unknown = sum(cell[0] == "not-known" for pairs in flink.values() for cell in pairs.values())
    most = max(check - start for start, check in zip(*list(seconds.values())[:2], strict=True))
    yield "# Will this code start from that state"
    yield ""
    cores = os.cpu_count()
    yield from wrapped(
        f"`stateshift check` of a file of one query, on {cores} cores, in seconds: the median of "
        f"{len(seconds['check'])} rounds, and the least and the most. The bound is {BOUND:g} s "
        f"beyond the start of Spark: {reached(most < BOUND)}, at most {most:.1f} s."
    )
    yield ""
    yield "| what | seconds |"
    yield "|---|---|"
    for name, values in seconds.items():
        yield f"| {name} | {told(values)} |"
    yield ""
    yield "## Spark"
    yield ""
    yield from wrapped(
        f"{len(spark)} pairs of old and new code. The verdict with the old code (--before) agrees "
        f"with a real Spark 4.3 in {right}. In the other {len(UNSEEN)} the function of a user is "
        "another one, which no plan holds: the verdict is `starts`, and says so. `right` is the "
        "output of the new code from the beginning, `wrong` another one. The verdict on "
        f"{len(CAUTIOUS)} is `starts-but` where this input happens to give the right output."
    )
    yield ""
    yield "| pair | check --before | check | Spark | |"
    yield "|---|---|---|---|---|"
    for name, known, alone, did, agrees in spark:
        missed = "not seen" if name in UNSEEN else "DIFFERS"
        yield f"| {name} | {known} | {alone} | {did} | {'' if agrees else missed} |"
    yield ""
    yield "## Other Sparks"
    yield ""
    yield from wrapped(
        "New code on state that another Spark wrote, or the same one; by the job's own provider, or "
        "all with RocksDB. The verdict, and what the newer Spark did; `then` is what it did after "
        "the commands of the verdict. They "
        f"agree in {agreeing(others, lambda name, cell: agrees_with_spark(name, str(cell[0]), str(cell[2])))}."
    )
    yield ""
    yield from other_sparks()
    yield ""
    yield "## Flink"
    yield ""
    yield from wrapped(
        "The verdict of a rehearsal, and what a real cluster did: they agree in "
        f"{agreeing(flink, lambda _, cell: agrees_with_flink(str(cell[0]), cell[1]))}. In {unknown} of them the verdict is `not-known`, which "
        "agrees with both. The errors are in tests/golden/check/flink-outcomes.json."
    )
    yield ""
    yield from flinks()


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3)
    put_down(PAGE, page(measured(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
