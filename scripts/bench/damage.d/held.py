"""Our word for a damaged image beside the engine's, and what the two come to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.damage.verdicts import Verdict

# A yes that the engine may answer with other results: no checksum covers the damage.
EXCUSED = ("unchecked", "unnamed")


@dataclass(frozen=True)
class Held:
    """One damage, our word for it, and the engine's: works, `fails: why`, `wrong: how`."""

    verdict: Verdict
    engine: str

    @property
    def ours(self) -> str:
        return "yes" if self.verdict.code == 0 else "no"

    @property
    def engines(self) -> str:
        return self.engine.partition(":")[0]

    @property
    def outcome(self) -> str:
        """alike, or in which way not."""
        if self.ours == "no":
            return "alike" if self.engines != "works" else "refused, and it works"
        if self.engines == "works":
            return "alike"
        if self.engines == "wrong" and self.verdict.result in EXCUSED:
            return "wrong results, no checksum"
        return "warned of, and it fails" if self.verdict.warned else "WRONG YES"


def cache() -> Path:
    """Where jobs, and what engines said, are kept."""
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("STATESHIFT_BENCH_DIR") or Path(own) / "stateshift-bench") / "damage"


def written(found: Sequence[Held], engine: str) -> Iterator[str]:
    """The engine's part of the page."""
    counts = Counter(one.outcome for one in found)
    yield f"## Held against a real {engine}"
    yield ""
    yield (
        f"{len(found)} mutations: "
        + ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
        + "."
    )
    yield ""
    yield "| outcome | file | damage | ours | the engine's | |"
    yield "|---|---|---|---|---|---|"
    for one in sorted(found, key=lambda held: (held.outcome, held.verdict.role, held.verdict.id)):
        if one.outcome != "alike":
            yes = one.verdict.warned or one.verdict.result
            ours = yes if one.ours == "yes" else f"no: {one.verdict.about}"
            cells = (
                one.outcome,
                one.verdict.role,
                one.verdict.what,
                ours[:140],
                one.engine[:140],
                one.verdict.id,
            )
            yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""


def wrong(found: Sequence[Held]) -> bool:
    return any(one.outcome == "WRONG YES" for one in found)
