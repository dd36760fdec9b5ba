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
        self, storage: Storage, thorough: bool = False, changes: Sequence[Mapping[str, Any]] = (), at: str = ""
    ) -> Survey: ...


@dataclass(frozen=True)
class Engine:
    """`find` says of what lies at a location which location all of its image is below, and the image's folder in it."""

    name: str
    find: Callable[[Storage, Sequence[Mapping[str, Any]]], tuple[str, str]]
    survey: SurveyIt
    plan: Callable[[Spec, JobSpec, Facts], tuple[Plan, ...]]
    identity: Callable[[Facts], str]
    own_part: Callable[[Spec, JobSpec, Survey], Survey]
    misplaced: Callable[[Storage, tuple[FileInfo, ...]], tuple[Finding, ...]]
    transforms: Callable[[], Mapping[str, Transform]]
    reader: Callable[[], EntriesReader]


def _spark_find(storage: Storage, changes: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    return storage.location, ""


def _spark_survey(
    storage: Storage, thorough: bool = False, changes: Sequence[Mapping[str, Any]] = (), at: str = ""
) -> Survey:
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


def _flink_find(storage: Storage, changes: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    from stateshift.engines.flink.survey import find

    return find(storage, changes)


def _flink_survey(
    storage: Storage, thorough: bool = False, changes: Sequence[Mapping[str, Any]] = (), at: str = ""
) -> Survey:
    from stateshift.engines.flink.survey import survey

    return survey(storage, thorough, changes, at)


def _flink_plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    from stateshift.engines.flink.planner import plan

    return plan(spec, job, facts)


def _flink_identity(facts: Facts) -> str:
    from stateshift.engines.flink.planner import identity_of

    return identity_of(facts)


def _flink_transforms() -> Mapping[str, Transform]:
    from stateshift.engines.flink.transforms import TRANSFORMS

    return TRANSFORMS


def _flink_reader() -> EntriesReader:
    from stateshift.engines.flink.entries import comparable

    return comparable


SPARK = Engine(
    "spark", _spark_find, _spark_survey, _spark_plan, _spark_identity, _spark_own_part, _spark_misplaced,
    _spark_transforms, _spark_reader,
)  # fmt: skip
FLINK = Engine(
    "flink", _flink_find, _flink_survey, _flink_plan, _flink_identity, lambda spec, job, survey: survey,
    lambda storage, files: (), _flink_transforms, _flink_reader,
)  # fmt: skip
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (SPARK, FLINK)}


def recognised(storage: Storage) -> str | None:
    """Whose image lies there, by the file that it begins with; None where nobody's does."""
    if storage.stat("metadata") is not None:
        return "spark"
    from stateshift.engines.flink.survey import image_folder

    if image_folder(storage) is not None:
        return "flink"
    return "spark" if next(storage.list(), None) is not None else None


def surveyed(
    kind: Engine,
    location: str,
    opening: Callable[[str], Storage],
    thorough: bool = False,
    changes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Storage, Survey]:
    """What is at a location, and the storage that its survey is of: an image may be in more than one place."""
    storage = opening(location)
    root, at = kind.find(storage, changes)
    if root != storage.location:
        storage = opening(root)
    return storage, kind.survey(storage, thorough, changes, at)


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
