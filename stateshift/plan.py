"""A plan is a value: phases of typed steps. `plan` prints exactly what `apply` executes.

    Plan
      job, engine, purpose  whose plan it is, and what it does with the job (`purpose`)
      phases                barriers, in the order of PHASES, empty ones left out
        steps                 independent of each other, except in an ordered phase, where each
                              follows the last
      findings              what a person should know before
      facts                 the fingerprint of what this was computed from
      estimate              outside the fingerprint: rates drift, plans do not
      endpoints             what the job reads and writes, as surveyed; shown to a person, so
                            outside as well
      positions             where sources read on that are repositioned; its steps say the same
      brokers               the ids of their clusters of Kafka, by address

The same spec and facts give the same plan, byte for byte. To JSON and back without loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from stateshift import plain
from stateshift.errors import PlanError
from stateshift.purpose import Purpose
from stateshift.step import AnyStep
from stateshift.survey import Endpoint, Finding, PositionChange

# One number for the shape of saved plans and journals. Raised whenever a step's fields change their
# meaning.
PLAN_VERSION = 1
PLAN_AGAIN = "make the plan again: stateshift plan SPEC -o FILE"

PhaseName = Literal[
    "prepare", "halt", "copy", "transform", "compare", "publish", "submit", "confirm", "retire"
]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
COPYING: tuple[PhaseName, ...] = ("copy", "transform", "publish")  # they write the image


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps between two barriers. An image becomes visible by an `ordered` phase."""

    name: PhaseName
    steps: tuple[AnyStep, ...]
    ordered: bool = False

    @property
    def files(self) -> int:
        return sum(step.files for step in self.steps)

    @property
    def bytes(self) -> int:
        return sum(step.bytes for step in self.steps)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long it may take, and what that was reckoned from."""

    seconds: float
    downtime_seconds: float
    basis: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one run of one job will do, in the order in which it is done."""

    job: str
    engine: str
    purpose: Purpose
    source: str
    target: str
    epoch: int | None
    phases: tuple[Phase, ...]
    findings: tuple[Finding, ...]
    facts: str
    provisional: bool = False
    estimate: Estimate | None = None
    endpoints: tuple[Endpoint, ...] = ()
    positions: tuple[PositionChange, ...] = plain.later(())
    brokers: tuple[tuple[str, str], ...] = plain.later(())

    def __iter__(self) -> Iterator[AnyStep]:
        for phase in self.phases:
            yield from phase.steps

    @property
    def fingerprint(self) -> str:
        """A name for exactly these steps made from exactly these facts. Parts that are only shown
        to a person (findings may speak of the time of day, estimates drift) are outside.
        """
        return _fingerprint(plain.to_plain(self))

    @property
    def files(self) -> int:
        return sum(phase.files for phase in self.phases)

    @property
    def bytes(self) -> int:
        return sum(phase.bytes for phase in self.phases)

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "refuse")

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)


def phases_of(*phases: Phase) -> tuple[Phase, ...]:
    """Return the phases that have steps. Their order and the names of steps are checked."""
    kept = tuple(phase for phase in phases if phase.steps)
    ranks = [PHASES.index(phase.name) for phase in kept]
    assert ranks == sorted(ranks), "phases out of order"
    steps = list(chain.from_iterable(phase.steps for phase in kept))
    assert len(steps) == len({step.name for step in steps}), "two steps of one name"
    return kept


def encode_plan(plan: Plan) -> dict[str, object]:
    """Return the plan as plain JSON, with its fingerprint for readers."""
    body = plain.to_plain(plan)
    return {"stateshift_plan": PLAN_VERSION, "fingerprint": _fingerprint(body), **body}


def _fingerprint(body: Mapping[str, object]) -> str:
    outside: dict[str, object] = {"estimate": None, "findings": [], "endpoints": []}
    return plain.fingerprint([PLAN_VERSION, {**body, **outside}])


def decode_plan(value: object) -> Plan:
    """Return the plan of plain JSON. Refuse one of another version, and one edited by hand."""
    body = dict(value) if isinstance(value, dict) else {}
    version = body.pop("stateshift_plan", None)
    fingerprint = body.pop("fingerprint", None)
    if version != PLAN_VERSION:
        fact = (
            f"not a plan of this version of stateshift (found {json.dumps(version)}, "
            f"expected {PLAN_VERSION})"
        )
        raise PlanError(fact, hint=PLAN_AGAIN)
    try:
        plan: Plan = plain.from_plain(Plan, body)
    except plain.Misfit as error:
        raise PlanError(f"not a plan: {error}", hint=PLAN_AGAIN) from error
    if plan.fingerprint != fingerprint:
        raise PlanError(
            "the plan's content does not match its fingerprint: it was changed by hand or damaged",
            hint=PLAN_AGAIN,
        )
    return plan
