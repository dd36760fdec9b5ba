"""Settings by the operator's names."""

from __future__ import annotations

import pytest

from stateshift.advise.evaluate.settings import KEYS, Settings, duration, settings_from
from stateshift.errors import SpecError


def test_the_operators_keys_are_known_with_and_without_their_prefix() -> None:
    given = {
        "job.autoscaler.utilization.target": "0.6",
        "catch-up.duration": "15 min",
        "restart.time-tracking.enabled": "true",
        "metrics.busy-time.aggregator": "avg",
    }
    settings = settings_from(given)
    assert settings.utilization_target == 0.6
    assert settings.catch_up_duration == 900
    assert settings.restart_time_tracking
    assert settings.busy_time_aggregator == "AVG"


def test_nothing_given_leaves_the_defaults() -> None:
    assert settings_from({}) == Settings()
    assert (Settings().utilization_above, Settings().utilization_below) == (
        1.0,
        pytest.approx(0.4),
    )


def test_each_key_sets_a_field_of_its_own() -> None:
    fields = [key.name for key in KEYS.values()]
    assert sorted(fields) == sorted(set(fields))
    assert set(fields) == set(Settings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300", 300), (300, 300), ("5 min", 300), ("5m", 300), ("1 h", 3600), ("500ms", 0.5)],
)
def test_durations_are_written_as_flink_writes_them(text: object, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("key", "value", "fact"),
    [
        ("utilisation.target", "0.6", "no setting"),
        ("utilization.target", "much", "expected a share"),
        ("utilization.target", "nan", "expected a share"),
        ("catch-up.duration", "soon", "expected a duration"),
        ("vertex.max-parallelism", "1.5", "expected a whole number"),
        ("restart.time-tracking.enabled", "1", "expected true or false"),
        ("metrics.busy-time.aggregator", "MIN", "expected MAX, AVG"),
        ("utilization.max", "0.5", "is not between"),
        ("scale-down.max-factor", "2", "is not between 0 and 1"),
        ("vertex.min-parallelism", "300", "is above vertex.max-parallelism"),
    ],
)
def test_a_setting_that_is_none_is_refused(key: str, value: str, fact: str) -> None:
    with pytest.raises(SpecError, match=fact):
        settings_from({key: value})
