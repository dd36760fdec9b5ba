"""What one plan moves, as a value: the findings, the steps and the comparisons are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateshift.engines.flink.image import metadata_of
from stateshift.engines.flink.rewrite.choice import Choice
from stateshift.engines.flink.rewrite.redistribution import Redistribution, Rewritten
from stateshift.formats.flink.metadata import OperatorState
from stateshift.survey import Survey


@dataclass(frozen=True, slots=True)
class Move:
    """Operators of images that go to a target, as they are or rewritten."""

    surveys: Sequence[Survey]
    choice: Choice
    redistribution: Redistribution
    target: str

    @property
    def operators(self) -> list[OperatorState]:
        """The operators that go along, as their images have them."""
        operators = []
        for survey, taken in zip(self.surveys, self.choice.taken, strict=True):
            for operator in metadata_of(survey.images[0]).operators:
                if operator.id.hex() in taken.operators:
                    operators.append(operator)
        return operators

    def rewritten(self, operator: str) -> Rewritten | None:
        """Return how an operator of the target is rewritten; None where it is copied."""
        for candidate in self.redistribution.rewritten:
            if candidate.operator == operator:
                return candidate
        return None

    def rewritten_of(self, number: int) -> dict[str, Rewritten]:
        """Return how operators of the `number`th image are rewritten, by their ids there."""
        own = {}
        for (image, operator), rewritten in self.redistribution.by_source.items():
            if image == number:
                own[operator] = rewritten
        return own
