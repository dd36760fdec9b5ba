"""Inputs that somebody has changed are judged, or refused: never an error of ours."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from stateshift.advise.advising import Advice
from stateshift.advise.evaluate.inputs import (
    Circumstances,
    FlinkInputs,
    FreeSlots,
    SparkInputs,
    Wish,
    inputs_from,
)
from stateshift.advise.evaluate.spark_batches import PlannedBatch, SparkSample
from stateshift.advise.evaluate.verdicts import verdict_on
from stateshift.cli.views.advise_text import blocks
from stateshift.documents.advice import advice_document
from stateshift.plain import Misfit, to_plain
from tests.advise.making import keyed, sample, vertex

ODD = (
    *(None, 0, -1, 1, 1.5, 1e17, 1e300, float("nan"), float("inf"), "", "7", [], {}, True),
    *(10**400, "NaN", "RUNNING", -1e17, 1e-300),
)


def flink() -> Any:
    samples = tuple(
        sample(
            at,
            vertex(at, 1000, 0.5, id="s", lag=at * 100, partitions=8),
            vertex(at, 1000, 1.0, id="c", inputs=keyed("s")),
        )
        for at in (400.0, 460.0, 520.0)
    )
    wishes = (Wish(410.0, {"s": 2, "c": 8}), Wish(100.0, {"s": 2}))
    return to_plain(
        FlinkInputs(Circumstances("orders", 520.0, slots=FreeSlots(8, 2), wishes=wishes), samples)
    )


def spark() -> Any:
    made = tuple(PlannedBatch(n, 10.0 * n, 10.0 * n + 6, 10_000) for n in range(6))
    looks = (SparkSample(30.0, (), 7), SparkSample(60.0, made, 9, 12, 200))
    return to_plain(SparkInputs(Circumstances("orders", 60.0), looks, 4))


def places(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, item in items:
        yield plain, key
        if isinstance(item, dict | list):
            yield from places(item)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("make", [flink, spark])
def test_changed_inputs_are_judged_or_refused(make: Any, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        inputs = make()
        for _ in range(chance.choice([1, 1, 2, 4])):
            holder, key = chance.choice(list(places(inputs)))
            if chance.random() < 0.15:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(chance.choice(ODD))
        try:
            read = inputs_from(json.loads(json.dumps(inputs)))
        except (Misfit, ValueError):
            continue
        verdict = verdict_on(read)
        assert verdict.word in ("fits", "scale", "move", "limited", "unknown"), f"seed {seed}"
        json.dumps(advice_document(Advice(read, verdict)), allow_nan=False)
        assert list(blocks([Advice(read, verdict)], explain=True))
