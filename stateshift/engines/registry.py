"""The engines by name, and the one place that knows there is more than one.

An engine contributes four things: `survey` (what is there), `plan` (what to do), `transforms` (pure functions of
files), and `entries` (an image read as a stream). Engines know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stateshift.engines.spark import endpoints as spark_endpoints
from stateshift.engines.spark import planner as spark_planner
from stateshift.engines.spark import survey as spark_survey
from stateshift.engines.spark import transforms as spark_transforms
from stateshift.engines.spark import views as spark_views
from stateshift.errors import PlanError
from stateshift.plan import Plan
from stateshift.spec import JobSpec, Spec
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, FileInfo, Finding, Survey
from stateshift.world import EntriesReader, Transform


class SurveyIt(Protocol):
    def __call__(
        self, storage: Storage, thorough: bool = False, changes: Sequence[Mapping[str, Any]] = ()
    ) -> Survey: ...


@dataclass(frozen=True)
class Engine:
    name: str
    survey: SurveyIt
    plan: Callable[[Spec, JobSpec, Facts], tuple[Plan, ...]]
    identity: Callable[[Facts], str]
    misplaced: Callable[[Storage, tuple[FileInfo, ...]], tuple[Finding, ...]]
    transforms: Mapping[str, Transform]
    entries: EntriesReader


SPARK = Engine(
    "spark",
    spark_survey.survey,
    spark_planner.plan,
    spark_planner.identity_of,
    spark_endpoints.misplaced,
    spark_transforms.TRANSFORMS,
    spark_views.viewed,
)
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (SPARK,)}


def engine(name: str) -> Engine:
    """The engine, or a clear refusal."""
    if name not in ENGINES:
        raise PlanError(
            f"this stateshift reads specs of engine {name!r} but cannot move its state",
            hint=f"engines it can move: {', '.join(sorted(ENGINES))}",
        )
    return ENGINES[name]


def all_transforms() -> dict[str, Transform]:
    return {name: transform for one in ENGINES.values() for name, transform in one.transforms.items()}


def all_entries() -> dict[str, EntriesReader]:
    return {one.name: one.entries for one in ENGINES.values()}
