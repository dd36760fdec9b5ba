"""The settings of a decision: those of the Flink operator's autoscaler, by its names.

Source: apache/flink-kubernetes-operator 1.16, `AutoScalerOptions`. The keys of an operator that was
tuned can be given here, with or without `job.autoscaler.` before them. Two are ours:
`sample.age-max`, the greatest age of a sample, and `cost-per-hour`, of one unit of parallelism.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal, TypeVar

from stateshift.errors import Complaint, SpecError
from stateshift.suggestion import BRACKETED, did_you_mean

T = TypeVar("T")

PREFIX: Final = "job.autoscaler."
Aggregator = Literal["MAX", "AVG"]
Alignment = Literal["BALANCED", "EVENLY_SPREAD", "OFF"]


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


_aggregator = _one_of("MAX", "AVG")
_alignment = _one_of("BALANCED", "EVENLY_SPREAD", "OFF")


def _key(default: T, name: str, read: Callable[[object], object]) -> T:
    """Return a field with the key that sets it, and the reader of the key's value."""
    return field(default=default, metadata={"key": name, "read": read})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, with the operator's defaults and keys. Times are in seconds."""

    metrics_window: float = _key(900.0, "metrics.window", duration)
    stabilization_interval: float = _key(300.0, "stabilization.interval", duration)
    utilization_target: float = _key(0.7, "utilization.target", _share)
    utilization_boundary: float = _key(0.3, "target.utilization.boundary", _at_least_zero)
    utilization_max: float | None = _key(None, "utilization.max", _share)
    utilization_min: float | None = _key(None, "utilization.min", _at_least_zero)
    catch_up_duration: float = _key(1800.0, "catch-up.duration", duration)
    restart_time: float = _key(300.0, "restart.time", duration)
    restart_time_tracking: bool = _key(False, "restart.time-tracking.enabled", _flag)
    restart_time_limit: float = _key(900.0, "restart.time-tracking.limit", duration)
    busy_time_aggregator: Aggregator = field(
        default="MAX", metadata={"key": "metrics.busy-time.aggregator", "read": _aggregator}
    )
    scale_down_max_factor: float = _key(0.6, "scale-down.max-factor", _at_least_zero)
    scale_up_max_factor: float = _key(100_000.0, "scale-up.max-factor", _at_least_zero)
    scale_down_interval: float = _key(3600.0, "scale-down.interval", duration)
    vertex_min_parallelism: int = _key(1, "vertex.min-parallelism", _count)
    vertex_max_parallelism: int = _key(200, "vertex.max-parallelism", _count)
    backlog_lag_threshold: float = _key(300.0, "backlog-processing.lag-threshold", duration)
    observed_lag_threshold: float = _key(
        30.0, "observed-true-processing-rate.lag-threshold", duration
    )
    observed_switch_threshold: float = _key(
        0.15, "observed-true-processing-rate.switch-threshold", _at_least_zero
    )
    observed_min_observations: int = _key(
        2, "observed-true-processing-rate.min-observations", _count
    )
    alignment: Alignment = field(
        default="BALANCED",
        metadata={"key": "scaling.key-group.partitions.adjust.mode", "read": _alignment},
    )
    sample_age_max: float = _key(7200.0, "sample.age-max", duration)
    cost_per_hour: float | None = _key(None, "cost-per-hour", _at_least_zero)

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


KEYS: Final = {each.metadata["key"]: each for each in fields(Settings)}


def settings_from(given: Mapping[str, object], pointer: str = "--set") -> Settings:
    """Return the settings, with those that somebody gave in place of the defaults.

    Raises:
        SpecError: a key is unknown, or its value is none; holds every complaint.
    """
    complaints: list[Complaint] = []
    changes: dict[str, object] = {}
    for name, value in given.items():
        key = name.removeprefix(PREFIX)
        if key not in KEYS:
            message = f"no setting {name!r}{did_you_mean(key, KEYS, BRACKETED)}"
            complaints.append(Complaint(pointer, message))
            continue
        try:
            changes[KEYS[key].name] = KEYS[key].metadata["read"](value)
        except ValueError as error:
            message = f"{name} is {value!r}: expected {error}"
            complaints.append(Complaint(pointer, message, value, str(error)))
    settings = replace(Settings(), **changes)  # type: ignore[arg-type]
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
