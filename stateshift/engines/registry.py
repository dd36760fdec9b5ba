"""The engines by name, and the one place that knows there is more than one.

An engine contributes four things: `survey` (what is there), `plan` (what to do), `transforms` (pure functions of
files), and `entries` (an image read as a stream). Engines know nothing of each other. Each part is imported when it is
first asked for: who looks at an image need not wait for the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stateshift.errors import PlanError
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, FileInfo, Finding, Survey

if TYPE_CHECKING:
    from stateshift.plan import Plan
    from stateshift.spec import JobSpec, Spec
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
    own_part: Callable[[Spec, JobSpec, Survey], Survey]
    misplaced: Callable[[Storage, tuple[FileInfo, ...]], tuple[Finding, ...]]
    transforms: Callable[[], Mapping[str, Transform]]
    reader: Callable[[], EntriesReader]


def _spark_survey(storage: Storage, thorough: bool = False, changes: Sequence[Mapping[str, Any]] = ()) -> Survey:
    from stateshift.engines.spark.survey import survey

    return survey(storage, thorough, changes=changes)


def _spark_plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    from stateshift.engines.spark.planner import plan

    return plan(spec, job, facts)


def _spark_identity(facts: Facts) -> str:
    from stateshift.engines.spark.planner import identity_of

    return identity_of(facts)


def _spark_own_part(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    from stateshift.engines.spark.dividing import own_part

    return own_part(spec, job, survey)


def _spark_misplaced(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
    from stateshift.engines.spark.endpoints import misplaced

    return misplaced(storage, files)


def _spark_transforms() -> Mapping[str, Transform]:
    import tempfile
    from functools import partial

    from stateshift.engines.spark.reshaping.files import REWRITE_STATE
    from stateshift.engines.spark.reshaping.rewrites import rewrite_state
    from stateshift.engines.spark.transforms import TRANSFORMS

    # State that does not fit in memory is sorted in a file that has no name, and is gone with its process.
    return {**TRANSFORMS, REWRITE_STATE: partial(rewrite_state, scratch=tempfile.TemporaryFile)}


def _spark_reader() -> EntriesReader:
    from stateshift.engines.spark.reshaping.comparing import comparable

    return comparable


SPARK = Engine(
    "spark", _spark_survey, _spark_plan, _spark_identity, _spark_own_part, _spark_misplaced, _spark_transforms,
    _spark_reader,
)  # fmt: skip
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
    return {name: transform for one in ENGINES.values() for name, transform in one.transforms().items()}


def all_entries() -> dict[str, EntriesReader]:
    return {one.name: one.reader() for one in ENGINES.values()}
