"""The settings of a decision: those of the Flink operator's autoscaler, by its names.

Source: apache/flink-kubernetes-operator 1.16, `AutoScalerOptions`. The keys of an operator that was
tuned can be given here, with or without `job.autoscaler.` before them. Two are ours:
`sample.age-max`, the greatest age of a sample, and `cost-per-hour`, of one unit of parallelism.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from stateshift.errors import Complaint, SpecError
from stateshift.suggestion import BRACKETED, did_you_mean

PREFIX: Final = "job.autoscaler."
Aggregator = Literal["MAX", "AVG"]
Alignment = Literal["BALANCED", "EVENLY_SPREAD", "OFF"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's defaults. Times are in seconds, utilizations are shares."""

    metrics_window: float = 900.0
    stabilization_interval: float = 300.0
    utilization_target: float = 0.7
    utilization_boundary: float = 0.3
    utilization_max: float | None = None
    utilization_min: float | None = None
    catch_up_duration: float = 1800.0
    restart_time: float = 300.0
    restart_time_tracking: bool = False
    restart_time_limit: float = 900.0
    busy_time_aggregator: Aggregator = "MAX"
    scale_down_max_factor: float = 0.6
    scale_up_max_factor: float = 100_000.0
    scale_down_interval: float = 3600.0
    vertex_min_parallelism: int = 1
    vertex_max_parallelism: int = 200
    backlog_lag_threshold: float = 300.0
    observed_lag_threshold: float = 30.0
    observed_switch_threshold: float = 0.15
    observed_min_observations: int = 2
    alignment: Alignment = "BALANCED"
    sample_age_max: float = 7200.0
    cost_per_hour: float | None = None

    @property
    def utilization_above(self) -> float:
        """Return the utilization from which a job has too little."""
        if self.utilization_max is not None:
            return self.utilization_max
        return self.utilization_target + self.utilization_boundary

    @property
    def utilization_below(self) -> float:
        """Return the utilization up to which a job has too much."""
        if self.utilization_min is not None:
            return self.utilization_min
        return self.utilization_target - self.utilization_boundary


@dataclass(frozen=True, slots=True)
class _Key:
    """The field that a key sets, and the reader of its value."""

    field: str
    read: Callable[[object], object]


_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


def _number(expected: str, fits: Callable[[float], bool]) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(str(value))
        except ValueError:
            raise ValueError(expected) from None
        if not math.isfinite(number) or not fits(number):
            raise ValueError(expected)
        return number

    return read


_at_least_zero = _number("a number of 0 or more", lambda number: number >= 0)
_share = _number("a share above 0, such as 0.7", lambda number: number > 0)
_whole = _number("a whole number from 1 on", lambda n: n >= 1 and n == int(n))


def duration(value: object) -> float:
    """Return the seconds of `300`, `5 min`, `5m`, `1 h`, as Flink writes durations."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _at_least_zero(value)
    parts = _DURATION.fullmatch(str(value).strip().lower())
    if parts is None or (parts[2] or "s") not in _UNITS:
        raise ValueError("a duration, such as 300, 5 min or 1 h")
    return float(parts[1]) * _UNITS[parts[2] or "s"]


def _count(value: object) -> int:
    return int(_whole(value))


def _flag(value: object) -> bool:
    word = str(value).lower()
    if word not in ("true", "false"):
        raise ValueError("true or false")
    return word == "true"


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        word = str(value).upper()
        if word not in choices:
            raise ValueError(", ".join(choices))
        return word

    return read


KEYS: Final[Mapping[str, _Key]] = {
    "metrics.window": _Key("metrics_window", duration),
    "stabilization.interval": _Key("stabilization_interval", duration),
    "utilization.target": _Key("utilization_target", _share),
    "target.utilization.boundary": _Key("utilization_boundary", _at_least_zero),
    "utilization.max": _Key("utilization_max", _share),
    "utilization.min": _Key("utilization_min", _at_least_zero),
    "catch-up.duration": _Key("catch_up_duration", duration),
    "restart.time": _Key("restart_time", duration),
    "restart.time-tracking.enabled": _Key("restart_time_tracking", _flag),
    "restart.time-tracking.limit": _Key("restart_time_limit", duration),
    "metrics.busy-time.aggregator": _Key("busy_time_aggregator", _one_of("MAX", "AVG")),
    "scale-down.max-factor": _Key("scale_down_max_factor", _at_least_zero),
    "scale-up.max-factor": _Key("scale_up_max_factor", _at_least_zero),
    "scale-down.interval": _Key("scale_down_interval", duration),
    "vertex.min-parallelism": _Key("vertex_min_parallelism", _count),
    "vertex.max-parallelism": _Key("vertex_max_parallelism", _count),
    "backlog-processing.lag-threshold": _Key("backlog_lag_threshold", duration),
    "observed-true-processing-rate.lag-threshold": _Key("observed_lag_threshold", duration),
    "observed-true-processing-rate.switch-threshold": _Key(
        "observed_switch_threshold", _at_least_zero
    ),
    "observed-true-processing-rate.min-observations": _Key("observed_min_observations", _count),
    "scaling.key-group.partitions.adjust.mode": _Key(
        "alignment", _one_of("BALANCED", "EVENLY_SPREAD", "OFF")
    ),
    "sample.age-max": _Key("sample_age_max", duration),
    "cost-per-hour": _Key("cost_per_hour", _at_least_zero),
}


def settings_from(given: Mapping[str, object], pointer: str = "--set") -> Settings:
    """Return the settings, with those that somebody gave in place of the defaults.

    Raises:
        SpecError: a key is unknown, or its value is none; holds every complaint.
    """
    complaints: list[Complaint] = []
    fields: dict[str, object] = {}
    for name, value in given.items():
        key = name.removeprefix(PREFIX)
        if key not in KEYS:
            message = f"no setting {name!r}{did_you_mean(key, KEYS, BRACKETED)}"
            complaints.append(Complaint(pointer, message))
            continue
        try:
            fields[KEYS[key].field] = KEYS[key].read(value)
        except ValueError as error:
            message = f"{name} is {value!r}: expected {error}"
            complaints.append(Complaint(pointer, message, value, str(error)))
    settings = replace(Settings(), **fields)  # type: ignore[arg-type]
    fault = fault_of(settings)
    if fault is not None:
        complaints.append(Complaint(pointer, fault))
    if complaints:
        raise SpecError(tuple(complaints), hint="stateshift/advise/README.md lists the settings")
    return settings


def fault_of(settings: Settings) -> str | None:
    """Return the fault of these settings, if there is one."""
    low, high = settings.utilization_below, settings.utilization_above
    target = settings.utilization_target
    if not (target > 0 and low <= target <= high):
        return (
            f"utilization.target {target:g} is not between utilization.min {low:g} and "
            f"utilization.max {high:g}"
        )
    if not 0 <= settings.scale_down_max_factor <= 1:
        return "scale-down.max-factor is not between 0 and 1"
    if not 1 <= settings.vertex_min_parallelism <= settings.vertex_max_parallelism:
        return "vertex.min-parallelism is above vertex.max-parallelism"
    times = [settings.metrics_window, settings.stabilization_interval, settings.catch_up_duration]
    times += [settings.restart_time, settings.restart_time_limit, settings.scale_down_interval]
    times += [settings.sample_age_max]
    times += [settings.scale_up_max_factor, settings.observed_switch_threshold]
    return "a time or a factor is negative" if min(times) < 0 else None
