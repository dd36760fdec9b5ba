"""All runs of the experiments: what tables and figures are made of.

Measured
  joins     a delay in seconds for each scheduler and row of table 3
  sweeps    for each sweep and scheduler a delay for each value of what is varied
  surges    for each scheduler the run with a surge
  markers   for each rate how long an epoch barrier's marker took to where
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments import SWEEPS, joins, pipeline, surge
from paper import TABLE_3

from stateshift.dataflow.schedulers import SCHEDULERS, Scheduler
from stateshift.dataflow.simulation import Run

MARKED_RATES = (80.0, 100.0, 120.0)
WAY = ("S", "FD", "J", "T")

Delays = Mapping[Scheduler, list[float]]


@dataclass(frozen=True, slots=True)
class Measured:
    joins: Delays
    sweeps: Mapping[str, Delays]
    surges: Mapping[Scheduler, Run]
    markers: Mapping[float, Mapping[str, float]]


def measured(seed: int) -> Measured:
    return Measured(
        joins={
            by: [
                joins(flow, names(targets), by, seed).delay_seconds for flow, targets, _ in TABLE_3
            ]
            for by in SCHEDULERS
        },
        sweeps={
            name: {by: [run(seed, by, x).delay_seconds for x in xs] for by in SCHEDULERS}
            for name, (_, _, xs, run) in SWEEPS.items()
        },
        surges={by: surge(seed, by) for by in SCHEDULERS},
        markers={rate: _marker(pipeline(seed, "epoch", rate=rate)) for rate in MARKED_RATES},
    )


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _marker(run: Run) -> dict[str, float]:
    """Seconds from the request to the source, then from each operator's last worker to the next
    one's; and to both workers of the expensive one.
    """
    last = [max(when for (one, _), when in run.through.items() if one == name) for name in WAY]
    parts = {"request → S": last[0]}
    for i in range(1, len(WAY)):
        parts[f"{WAY[i - 1]} → {WAY[i]}"] = last[i] - last[i - 1]
    return parts | {
        "request → FD's straggler": run.through["FD", 0],
        "request → FD's other": run.through["FD", 1],
    }
