"""A load that has changed for good is judged by itself; bursts are judged by their mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stateshift.advise.evaluate.inputs import Circumstances, FlinkInputs
from stateshift.advise.evaluate.samples import JobSample, SubtaskSample, VertexSample
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import verdict_on

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")
EAGER = Settings(stabilization_interval=0.0)
CAN = 100.0


def looks(share: Callable[[float], float], until: float, every: float) -> list[JobSample]:
    """Look at a job of one vertex that can take a hundred a second; a share of that arrives."""
    arrived, done, busy, samples = 0.0, 0.0, 0.0, []
    for second in range(1, int(until) + 1):
        arrived += share(second) * CAN
        takes = min(CAN, arrived - done)
        done += takes
        busy += takes / CAN
        if second % every == 0:
            idle = round(1000 * (second - busy))
            one = SubtaskSample(done, 1000 * second - idle, idle, 0.0)
            vertex = VertexSample("v", "v", 1, 128, (), done, done, (one,), lag=arrived - done)
            samples.append(JobSample(float(second), "job", 0.0, (vertex,)))
    return samples


def words(samples: list[JobSample]) -> dict[float, str]:
    """Return the verdict of each look, by its time."""
    verdicts = {}
    for number in range(2, len(samples) + 1):
        now = samples[number - 1].time
        inputs = FlinkInputs(Circumstances("job", now, EAGER), tuple(samples[:number]))
        verdicts[now] = verdict_on(inputs).word
    return verdicts


@pytest.mark.parametrize("every", [20.0, 30.0, 60.0])
def test_a_step_is_seen_once_it_has_lasted_a_minute_or_two(every: float) -> None:
    found = words(looks(lambda second: 0.5 if second <= 600 else 1.4, 900, every))
    lasting = max(60.0, 2 * every)
    assert {word for time, word in found.items() if time <= 600} == {"fits"}
    assert {word for time, word in found.items() if time >= 600 + lasting} == {"scale"}


@pytest.mark.parametrize("every", [20.0, 30.0, 60.0])
def test_a_step_down_is_seen_too_and_what_waits_is_drained(every: float) -> None:
    found = words(looks(lambda second: 1.4 if second <= 300 else 0.4, 900, every))
    lasting = max(60.0, 2 * every)
    assert {word for time, word in found.items() if 60 < time <= 300} == {"scale"}
    assert {word for time, word in found.items() if time >= 300 + lasting} == {"fits"}


@pytest.mark.parametrize("every", [30.0, 45.0, 60.0])
@pytest.mark.parametrize("shift", [0, 11, 17, 29])
def test_bursts_that_it_catches_up_with_are_no_step(every: float, shift: int) -> None:
    def share(second: float) -> float:
        return 2.0 if (second + shift) % 120 >= 90 else 0.3

    found = words(looks(share, 1800, every))
    late = [word for time, word in found.items() if time >= 240]
    assert late.count("fits") >= 0.9 * len(late)
    calm_first = words(looks(lambda second: 0.3 if second < 600 else share(second), 1800, every))
    assert set(calm_first.values()) == {"fits"}
