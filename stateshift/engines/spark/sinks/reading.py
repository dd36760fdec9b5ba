"""Read what the sink that a spec names has of a job's output."""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.engines.looks import Opening
from stateshift.engines.spark.sinks.kinds import named_sink
from stateshift.spec import SinkSpec
from stateshift.survey import SinkFacts


def read_sink(sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]) -> SinkFacts:
    """Return what the sink has of the queries whose ids these are, as far back as the batch beside each id."""
    return named_sink(sink)
