"""What the journal of a failover says of its time."""

from __future__ import annotations

from pathlib import Path

from stateshift.journal import decode_records, fold
from stateshift.step.evidence import TargetClaimed, of_kind


def stages_of(workdir: Path, begun: float) -> dict[str, float]:
    """Return the seconds of each stage by the run's journal, and when the standby was claimed."""
    records, _ = decode_records((workdir / "journal").read_bytes())
    steps = {name: step for plan in fold(iter(records)).plans for name, step in plan.steps.items()}
    begins = {name: step.at for name, step in steps.items()}
    ends = {name: step.at + step.seconds for name, step in steps.items()}
    claimed = of_kind(steps["prepare/claim"].evidence, TargetClaimed).at
    ready = ends["prepare/claim"]
    submit = next(name for name in steps if name.startswith("submit/"))
    confirm = next(name for name in steps if name.startswith("confirm/"))
    found = {
        "claim": claimed - begun,
        "read and check": ready - claimed,
        "start": ends[submit] - begins[submit],
        "first commit": ends[confirm] - ends[submit],
    }
    return {name: round(seconds, 2) for name, seconds in found.items()} | {"claimed_at": claimed}
