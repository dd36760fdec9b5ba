"""A job that moves, read once, at the planner's door: every finding, step and comparison is made of
the `Move`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stateshift.engines.flink.image import metadata_of
from stateshift.engines.flink.rewrite.choice import Choice, choose
from stateshift.engines.flink.rewrite.redistribution import Redistribution, Rewritten, redistribute
from stateshift.formats.flink.metadata import OperatorState
from stateshift.specification import JobSpec, Spec
from stateshift.survey import Facts, Survey


@dataclass(frozen=True)
class Move:
    """Operators of images that go to a target, as they are or rewritten. They are known where each
    image can be read.
    """

    spec: Spec
    job: JobSpec
    facts: Facts

    @property
    def surveys(self) -> tuple[Survey, ...]:
        return (self.facts.source, *self.facts.others)

    @property
    def target(self) -> str:
        return self.facts.target.location

    @cached_property
    def choice(self) -> Choice:
        return choose(self.job, self.surveys)

    @cached_property
    def redistribution(self) -> Redistribution:
        return redistribute(self.job, self.surveys, self.choice)

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
        """Return the rewriting of an operator of the target; None where it is copied."""
        for candidate in self.redistribution.rewritten:
            if candidate.operator == operator:
                return candidate
        return None

    def rewritten_of(self, number: int) -> dict[str, Rewritten]:
        """Return the rewriting of operators of the `number`th image, by their ids there."""
        own = {}
        for (image, operator), rewritten in self.redistribution.by_source.items():
            if image == number:
                own[operator] = rewritten
        return own
