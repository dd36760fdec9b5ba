"""Metrics as a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypedDict

from stateshift.documents.metrics import Family, Sample


class SampleDocument(TypedDict):
    """One value of a metric."""

    labels: Annotated[dict[str, str], "the labels by name"]
    value: Annotated[float, "the value"]


class MetricDocument(TypedDict):
    """A metric with its values."""

    name: Annotated[str, "its name"]
    type: Annotated[Literal["gauge"], "its type, in Prometheus' words"]
    help: Annotated[str, "what it says"]
    samples: Annotated[list[SampleDocument], "its values"]


class MetricsDocument(TypedDict):
    """What `metrics` measures."""

    metrics: Annotated[list[MetricDocument], "every metric that has a value"]
    output: Annotated[str | None, "the file that was written"]


def document(families: Iterable[Family], output: str | None) -> MetricsDocument:
    """Return the metrics as a document."""
    return {"metrics": [_metric(family) for family in families], "output": output}


def _metric(family: Family) -> MetricDocument:
    samples = [_sample(sample) for sample in family.samples]
    return {"name": family.name, "type": "gauge", "help": family.help, "samples": samples}


def _sample(sample: Sample) -> SampleDocument:
    return {"labels": dict(sample.labels), "value": float(sample.value)}
