"""The samples of the present load, of those that count: since its last lasting step. Pure.

A mean over the window would tell of a load that has doubled, or has ended, only once the window has
passed. A burst is no step: the mean over many of them is what a job has to keep up with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from stateshift.advise.evaluate.samples import JobSample
from stateshift.advise.evaluate.spark_batches import SparkSample

Sample = TypeVar("Sample", JobSample, SparkSample)

# A job has to fall behind, or not to, for as long and in as many intervals: longer than a burst.
STEP_SECONDS: Final = 60.0
INTERVALS_MIN: Final = 2
# Intervals that are shorter are taken together: counters are up to ten seconds old.
INTERVAL_SECONDS: Final = 15.0
# An interval in which a burst begins has idle time before it.
BUSY_MIN: Final = 0.85


def since_last_step(
    samples: Sequence[Sample], falls_behind: Callable[[Sequence[Sample], float], bool]
) -> Sequence[Sample]:
    """Return the samples since the load has changed for good: each interval from there on says the
    opposite of all of them together. `falls_behind` tells it of some samples, by vertices that are
    busy for so much of the time at least.
    """
    marks = [samples[-1]]  # far enough apart, the newest among them
    for sample in reversed(samples):
        if marks[0].time - sample.time >= INTERVAL_SECONDS:
            marks.insert(0, sample)
    begin, run, before = 0, 0, None
    for last in range(1, len(marks)):
        behind = falls_behind([marks[last - 1], marks[last]], BUSY_MIN)
        if behind != before:
            run = last - 1
        before = behind
        lasts = marks[last].time - marks[run].time
        if run == begin or last - run < INTERVALS_MIN or lasts < STEP_SECONDS:
            continue
        if falls_behind(marks[begin : last + 1], 0.0) != behind:
            begin = run
    return samples[samples.index(marks[begin]) :] if begin > 0 else samples
