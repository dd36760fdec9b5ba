"""The page of the damage bench: counts by engine, provider and kind, by version, by kind of
file, and what failed."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.damage.verdicts import FAILURES, Verdict

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = ("detected", "harmless", "earlier", "unchecked", *FAILURES)
FAILURES_MAX = 60
HEAD = """# Damaged images, and what `verify --deep` and `apply` say of them

Written by `./scripts/bench/damage`. Each mutation damages one file that a restart reads, of a golden image that a real
engine wrote: a flipped bit, a missing end, a run of zeros, bytes behind the end, a missing file, or files exchanged
between shards, epochs, operators and sources. Images of Spark's are damaged with a planned batch, too, with exchanged
files alone, and with paths of another place. It is the same damage every time: `--one ID` makes it again.

| word | means |
|---|---|
| detected | `verify --deep` refuses: exit 3 or 5 |
| harmless | it says yes, and a restart reads the same entries, offsets, watermark and query id |
| earlier | it says yes to an earlier batch, by its number; a restart reads what that batch had left |
| unchecked | it says yes; no checksum covers the damage, and a note of the verdict says so |
| unnamed | the same, and no note says so |
| missed | it says yes, and a restart reads something else |
| traceback, hang, memory | a bug of ours; no end in a minute; more than 1 GiB |
| odd | a refusal by another exit code |
"""


def written(verdicts: Sequence[Verdict]) -> list[str]:
    counts = Counter(one.result for one in verdicts)
    return [
        *HEAD.splitlines(),
        f"{len(verdicts):,} mutations of {len({image_of(one) for one in verdicts})} "
        "images, with the code of commit "
        f"`{commit()}`: " + ", ".join(f"{counts[name]:,} {name}" for name in COLUMNS) + ".",
        "",
        *_costs(verdicts),
        "",
        "## By engine, provider and kind",
        "",
        *_table(
            verdicts,
            ("engine", "provider", "kind"),
            lambda one: (one.engine, one.provider, one.kind),
        ),
        "",
        "## By version",
        "",
        *_table(verdicts, ("engine", "version"), lambda one: (one.engine, one.version)),
        "",
        "## By kind of file",
        "",
        *_table(verdicts, ("engine", "file"), lambda one: (one.engine, one.role)),
        "",
        "## By kind of damage",
        "",
        *_table(verdicts, ("engine", "damage"), lambda one: (one.engine, one.action)),
        "",
        *_apply(verdicts),
        *_refused_though_equal(verdicts),
        *_failures(verdicts),
    ]


def image_of(verdict: Verdict) -> str:
    return verdict.id.rpartition("#")[0]


def is_wrong_apply(verdict: Verdict) -> bool:
    """`apply` published what `verify --deep` refuses, or fell over it."""
    return verdict.apply in ("published", "traceback")


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _costs(verdicts: Sequence[Verdict]) -> Iterator[str]:
    slowest = max(verdicts, key=lambda one: one.seconds)
    largest = max(verdicts, key=lambda one: one.mib)
    yield (
        f"Slowest: {slowest.seconds:.1f} CPU seconds (`{slowest.id}`). Largest growth of a "
        "process: "
    )
    yield f"{largest.mib:.0f} MiB (`{largest.id}`)."


def _table(
    verdicts: Iterable[Verdict], names: Sequence[str], of: Callable[[Verdict], tuple[str, ...]]
) -> Iterator[str]:
    rows: dict[tuple[str, ...], Counter[str]] = {}
    for one in verdicts:
        rows.setdefault(of(one), Counter())[one.result] += 1
    yield f"| {' | '.join((*names, 'mutations', *COLUMNS))} |"
    yield f"|{'---|' * len(names)}{'--:|' * (len(COLUMNS) + 1)}"
    for key, counts in sorted(rows.items()):
        cells = (
            *key,
            f"{sum(counts.values()):,}",
            *(f"{counts[name]:,}" if counts[name] else "" for name in COLUMNS),
        )
        yield f"| {' | '.join(cells)} |"


def _apply(verdicts: Sequence[Verdict]) -> Iterator[str]:
    asked = [one for one in verdicts if one.apply]
    if not asked:
        return
    counts = Counter((one.engine, one.apply) for one in asked)
    yield "## `apply` of what `verify --deep` refuses"
    yield ""
    yield (
        "From one folder to another. *fenced*: it failed once the job was fenced, though the "
        "damage was there before."
    )
    yield "*not asked*: the whole image cannot be moved either."
    yield ""
    words = ("refused", "failed", "fenced", "published", "traceback", "not asked")
    yield f"| engine | {' | '.join(words)} |"
    yield f"|---|{'--:|' * len(words)}"
    for engine in sorted({one.engine for one in asked}):
        yield f"| {engine} | {' | '.join(f'{counts[engine, word]:,}' for word in words)} |"
    yield ""


def _refused_though_equal(verdicts: Sequence[Verdict]) -> Iterator[str]:
    strict = Counter(
        (one.engine, one.role, one.action)
        for one in verdicts
        if one.result == "detected" and one.same
    )
    if not strict:
        return
    yield "## Refused, though what we read of it is the same"
    yield ""
    yield "The damage is there; whether the engine minds it is what `--engine` asks."
    yield ""
    yield "| engine | file | damage | |"
    yield "|---|---|---|--:|"
    for key, count in sorted(strict.items()):
        yield f"| {' | '.join(key)} | {count:,} |"
    yield ""


def _failures(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """By class, with one to repeat for each."""
    wrong = [one for one in verdicts if one.result in FAILURES or is_wrong_apply(one)]
    if not wrong:
        return
    classes: dict[tuple[str, ...], list[Verdict]] = {}
    for one in wrong:
        result = one.result if one.result in FAILURES else f"apply: {one.apply}"
        classes.setdefault((result, one.engine, one.role, one.action), []).append(one)
    yield "## What failed"
    yield ""
    yield "All of them are in `damage.jsonl`, each with the way to repeat it."
    yield ""
    yield "| result | engine | file | damage | | one of them | |"
    yield "|---|---|---|---|--:|---|---|"
    ordered = sorted(classes.items(), key=lambda item: (item[0][0] == "unnamed", -len(item[1])))
    for key, found in ordered[:FAILURES_MAX]:
        about = found[0].about or ", ".join(found[0].differs[:2])
        yield (
            f"| {' | '.join(key)} | {len(found):,} | `{found[0].id}` | "
            f"{about[:160].replace('|', '/')} |"
        )
    yield ""
