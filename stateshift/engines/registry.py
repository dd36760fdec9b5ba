"""The engines by name, and the one place that knows there is more than one.

An engine contributes five things: `survey` (what is there), `plan` (what to do), `transforms` (pure
functions of files), `entries` (an image read as a stream) and `looks` (an image shown, judged,
compared and exported). Engines know nothing of each other. Each part is imported when it is first
asked for: who looks at an image need not wait for the planner, and who looks at one of Spark's not
for Flink's engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stateshift.engines.views import DecodedFile, Looks, Opening
from stateshift.errors import PlanError
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, FileInfo, Finding, Image, SinkFacts, Survey

if TYPE_CHECKING:
    from stateshift.plan import Plan
    from stateshift.specification import JobSpec, SinkSpec, Spec
    from stateshift.world import EntriesReader, Transform


class SurveyIt(Protocol):
    def __call__(
        self,
        location: str,
        opening: Opening,
        thorough: bool = False,
        changes: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[Storage, Survey]: ...


class Round(Protocol):
    def __call__(self, spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan: ...


@dataclass(frozen=True)
class Engine:
    """`survey` gives what is at a location, and the storage that its survey is of: an image may be
    in more than one place. `round` is the plan of what can be brought while the job runs, or while
    it stops, `standby` of what makes that an image of its own, and `hidden` of what keeps such an
    image from being seen where the next round would tear it, None where it would not. `begins_with`
    is the file that an image's folder has and no other engine's; `file` decodes a single file, and
    is None where that first file says what its whole folder is, and the others nothing alone.
    `sink` reads what the sink that a spec names has of these queries, as far back as the batch that
    stands beside each; None where an image says enough of its sinks. `taken` is an image without
    the operators that the job's changes leave behind: what is wrong with them harms nobody.
    """

    name: str
    begins_with: str
    survey: SurveyIt
    fenced_by: Callable[[Storage], str | None]
    plan: Callable[[Spec, JobSpec, Facts], tuple[Plan, ...]]
    round: Round
    standby: Callable[[Spec, JobSpec, Facts], Plan]
    hidden: Callable[[JobSpec, Facts, Plan], Plan | None]
    identity: Callable[[Facts], str]
    own_part: Callable[[Spec, JobSpec, Survey], Survey]
    misplaced: Callable[[Storage, tuple[FileInfo, ...]], tuple[Finding, ...]]
    transforms: Callable[[], Mapping[str, Transform]]
    reader: Callable[[], EntriesReader]
    looks: Callable[[], Looks]
    taken: Callable[[JobSpec, int, Image], Image]
    file: Callable[[Storage, str, str, Opening], DecodedFile] | None = None
    sink: Callable[[SinkSpec, Opening, Mapping[str, int]], SinkFacts] | None = None


def _spark_survey(
    location: str,
    opening: Opening,
    thorough: bool = False,
    changes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Storage, Survey]:
    from stateshift.engines.spark.survey.checkpoint import survey

    storage = opening(location)
    return storage, survey(storage, thorough, changes=changes)


def _spark_fenced_by(storage: Storage) -> str | None:
    from stateshift.engines.spark.survey.checkpoint import survey

    return next((image.fence for image in survey(storage).images if image.fence is not None), None)


def _spark_plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    from stateshift.engines.spark.plan.move import plan

    return plan(spec, job, facts)


def _spark_round(spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
    from stateshift.engines.spark.plan.move import round_plan

    return round_plan(spec, job, facts, stopping)


def _spark_standby(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    from stateshift.engines.spark.plan.move import standby_plan

    return standby_plan(spec, job, facts)


def _spark_hidden(job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
    from stateshift.engines.spark.plan.move import hidden_plan

    return hidden_plan(job, facts, coming)


def _spark_identity(facts: Facts) -> str:
    from stateshift.engines.spark.plan.move import identity_of

    return identity_of(facts)


def _spark_own_part(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    from stateshift.engines.spark.survey.own_part import own_part

    return own_part(spec, job, survey)


def _spark_misplaced(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
    from stateshift.engines.spark.survey.endpoints import misplaced

    return misplaced(storage, files)


def _spark_transforms() -> Mapping[str, Transform]:
    import tempfile
    from functools import partial

    from stateshift.engines.spark.rewrite.files import REWRITE_STATE
    from stateshift.engines.spark.rewrite.state import rewrite_state
    from stateshift.engines.spark.rewrite.transforms import TRANSFORMS

    # State that does not fit in memory is sorted in a file that has no name, and is gone with its
    # process.
    return {**TRANSFORMS, REWRITE_STATE: partial(rewrite_state, scratch=tempfile.TemporaryFile)}


def _spark_reader() -> EntriesReader:
    from stateshift.engines.spark.rewrite.comparison import comparable

    return comparable


def _spark_looks() -> Looks:
    from stateshift.engines.spark import looks

    return looks


def _spark_file(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    from stateshift.engines.spark.views.single_file import decoded

    return decoded(storage, name, location, opening)


def _spark_sink(sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]) -> SinkFacts:
    from stateshift.engines.spark.survey.sinks.sink import read_sink

    return read_sink(sink, opening, back_to)


def _flink_survey(
    location: str,
    opening: Opening,
    thorough: bool = False,
    changes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Storage, Survey]:
    from stateshift.engines.flink.survey.image import survey

    return survey(location, opening, changes)


def _flink_plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    from stateshift.engines.flink.plan.move import plan

    return plan(spec, job, facts)


def _flink_round(spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
    from stateshift.engines.flink.plan.move import round_plan

    return round_plan(spec, job, facts)


def _flink_standby(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    from stateshift.engines.flink.plan.move import standby_plan

    return standby_plan(spec, job, facts)


def _flink_identity(facts: Facts) -> str:
    from stateshift.engines.flink.plan.move import identity_of

    return identity_of(facts)


def _flink_transforms() -> Mapping[str, Transform]:
    import tempfile
    from functools import partial

    from stateshift.engines.flink.rewrite.transforms import RESCALE, TRANSFORMS, rescale

    return {**TRANSFORMS, RESCALE: partial(rescale, scratch=tempfile.TemporaryFile)}


def _flink_reader() -> EntriesReader:
    from stateshift.engines.flink.entries.image import comparable

    return comparable


def _flink_looks() -> Looks:
    from stateshift.engines.flink import looks

    return looks


def _spark_taken(job: JobSpec, number: int, image: Image) -> Image:
    from stateshift.engines.spark.rewrite.wishes import taken_along

    return taken_along(job, image)


def _flink_taken(job: JobSpec, number: int, image: Image) -> Image:
    from stateshift.engines.flink.rewrite.choice import taken_along

    return taken_along(job, number, image)


SPARK = Engine(
    "spark",
    "metadata",
    _spark_survey,
    _spark_fenced_by,
    _spark_plan,
    _spark_round,
    _spark_standby,
    _spark_hidden,
    _spark_identity,
    _spark_own_part,
    _spark_misplaced,
    _spark_transforms,
    _spark_reader,
    _spark_looks,
    _spark_taken,
    _spark_file,
    _spark_sink,
)
FLINK = Engine(
    "flink",
    "_metadata",
    _flink_survey,
    lambda storage: None,
    _flink_plan,
    _flink_round,
    _flink_standby,
    lambda job, facts, coming: None,  # no file of a checkpoint ever gets another's name
    _flink_identity,
    lambda spec, job, survey: survey,
    lambda storage, files: (),
    _flink_transforms,
    _flink_reader,
    _flink_looks,
    _flink_taken,
)
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (SPARK, FLINK)}


def recognised(storage: Storage) -> str | None:
    """Whose image lies there, by the file that it begins with; None where nobody's does."""
    if storage.stat(SPARK.begins_with) is not None:
        return SPARK.name
    from stateshift.engines.flink.survey.folders import image_folder

    if image_folder(storage) is not None:
        return FLINK.name
    return SPARK.name if next(storage.list(), None) is not None else None


def found_at(
    location: str, opening: Opening, thorough: bool = False
) -> tuple[Engine, Storage, Survey]:
    """What is at a location, by the first engine that finds an image there, or else the last."""
    location = folder_meant(location, opening)
    for one in _likeliest_first(opening(location)):
        storage, survey = one.survey(location, opening, thorough)
        if survey.images:
            break
    return one, storage, survey


def _likeliest_first(storage: Storage) -> list[Engine]:
    """Who looks at one engine's image does not wait for the others'."""
    return sorted(ENGINES.values(), key=lambda one: storage.stat(one.begins_with) is None)


def shown_by(*locations: str, opening: Opening) -> Engine:
    """Whose image lies there; of several, that of the last engine, which refuses what is not its
    own. What is no image is for the first to refuse.
    """
    names = {recognised(opening(folder_meant(location, opening))) for location in locations}
    return next((one for one in reversed(list(ENGINES.values())) if one.name in names), SPARK)


def decoded_file(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    """A single file, by the engine whose files say something alone."""
    decode = next(one.file for one in ENGINES.values() if one.file is not None)
    return decode(storage, name, location, opening)


def is_whole(name: str) -> bool:
    """Whether a single file says what its whole folder is."""
    return any(name == one.begins_with and one.file is None for one in ENGINES.values())


def folder_meant(location: str, opening: Opening) -> str:
    """The folder that a single file stands for, where it says what its whole folder is; else the
    location itself.
    """
    if not is_whole(location.rstrip("/").rpartition("/")[2]):
        return location
    from stateshift.engines.single_file import folder_of_single

    return folder_of_single(location, opening)


def engine(name: str) -> Engine:
    """The engine, or a clear refusal."""
    if name not in ENGINES:
        raise PlanError(
            f"this stateshift reads specs of engine {name!r} but cannot move its state",
            hint=f"engines it can move: {', '.join(sorted(ENGINES))}",
        )
    return ENGINES[name]


class Transforms(Mapping[str, "Transform"]):
    """Of all engines, by names that begin with the engine's, which is loaded when it is asked
    for one of them.
    """

    def __getitem__(self, name: str) -> Transform:
        return ENGINES[name.partition(".")[0]].transforms()[name]

    def __iter__(self) -> Iterator[str]:
        return (name for one in ENGINES.values() for name in one.transforms())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Entries(Mapping[str, "EntriesReader"]):
    """Of all engines, by the engine's name; likewise."""

    def __getitem__(self, name: str) -> EntriesReader:
        return ENGINES[name].reader()

    def __iter__(self) -> Iterator[str]:
        return iter(ENGINES)

    def __len__(self) -> int:
        return len(ENGINES)
