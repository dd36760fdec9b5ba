"""Flink's engine: `engines.protocol.Engine`. Each method imports its part when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from stateshift.engines.flink.layout import METADATA
from stateshift.errors import PlanError
from stateshift.specification.transform import Repair
from stateshift.storage.protocol import Storage
from stateshift.survey import (
    ClusterFacts,
    Facts,
    FileInfo,
    Finding,
    Image,
    InputFacts,
    NewPosition,
    OutputRead,
    Survey,
    TableFacts,
)

if TYPE_CHECKING:
    from stateshift.clusters.protocol import Cluster
    from stateshift.engines.protocol import Engine
    from stateshift.engines.views import (
        DecodedFile,
        DeepCheck,
        Differences,
        Export,
        ImageAt,
        Judged,
        Opening,
        PreparedState,
        Readers,
        RowBatch,
        ShownEntry,
        Wanted,
    )
    from stateshift.plan import Plan
    from stateshift.sources.topic_positions import OpenTopics, Patience
    from stateshift.specification import JobSpec, SinkSpec, Spec
    from stateshift.specification.transform import Change
    from stateshift.world import EntriesReader, Transform


class FlinkEngine:
    """Savepoints and checkpoints, whatever backend wrote them."""

    name = "flink"
    begins_with = METADATA
    leaves_out_shards = False
    decodes_files = False

    def recognises(self, storage: Storage) -> bool:
        from stateshift.engines.findings import images_below
        from stateshift.engines.flink.survey.image import image_folder
        from stateshift.formats.flink.metadata import MAGIC

        folder = image_folder(storage)
        if folder == "":
            return True
        # Several below are Flink's as well: its survey says which is meant. Beside checkpoints of
        # Spark, a file of this name may be a summary of Parquet's.
        files = tuple(storage.list())
        below = {file.path.rpartition("/")[2] for file in images_below(files).values()}
        if below <= {METADATA} and not any(file.path.endswith("/metadata") for file in files):
            return bool(below)
        begin = b"" if folder is None else b"".join(storage.chunks(f"{folder}/{METADATA}", 0, 4))
        return begin[:4] == MAGIC.to_bytes(4, "big")

    def survey(
        self,
        location: str,
        opening: Opening,
        thorough: bool = False,
        changes: Sequence[Change] = (),
    ) -> tuple[Storage, Survey]:
        from stateshift.engines.flink.survey.image import survey

        return survey(location, opening, changes)

    def own_part(self, spec: Spec, job: JobSpec, survey: Survey) -> Survey:
        return survey

    def misplaced(self, storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
        return ()

    def ask_source(self, cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
        from stateshift.engines.flink.survey.questions import ask_source

        return ask_source(cluster, job, known)

    def ask_target(
        self, cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
    ) -> ClusterFacts:
        from stateshift.engines.flink.survey.questions import ask_target

        return ask_target(cluster, job, known, source)

    def identity(self, facts: Facts) -> str:
        from stateshift.engines.flink.plan.move import identity_of

        return identity_of(facts)

    def is_copy(self, copy: Image, original: Image, job: JobSpec, target: str) -> bool:
        return True  # an image does not say whose it is

    def lacks(self, originals: Sequence[Image], copy: Image) -> str | None:
        # A _metadata names whatever belongs to it; but it may be another job's.
        there: set[str] = set()
        for original in originals:
            there.update(operator.id for operator in original.operators)
        for operator in copy.operators:
            if operator.stores and operator.id not in there:
                return f"the state of operator {operator.id}"
        return None

    def times_written(self, survey: Survey) -> Mapping[int, float]:
        epochs = {image.first_read[-1]: image.epoch for image in survey.images if image.first_read}
        found = {}
        for file in survey.files:
            epoch = epochs.get(file.path)
            if epoch is not None:
                found[epoch] = file.modified
        return found

    def plan(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
        from stateshift.engines.flink.plan.move import plan

        return plan(spec, job, facts)

    def findings_at_start(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
        from stateshift.engines.findings import findings_of
        from stateshift.engines.flink.findings.taking import of_live_jobs
        from stateshift.engines.flink.rewrite.move import Move

        return findings_of(Move(spec, job, facts), (of_live_jobs,))

    def plan_round(self, spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
        from stateshift.engines.flink.plan.move import round_plan

        return round_plan(spec, job, facts)

    def plan_standby(self, spec: Spec, job: JobSpec, facts: Facts) -> Plan:
        from stateshift.engines.flink.plan.move import standby_plan

        return standby_plan(spec, job, facts)

    def as_copied(self, facts: Facts) -> Facts:
        return facts

    def plan_hiding(self, job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
        return None  # a checkpoint's files keep their names: no round tears an image

    def transforms(self) -> Mapping[str, Transform]:
        import tempfile
        from functools import partial

        from stateshift.engines.flink.jvm import hashing
        from stateshift.engines.flink.rewrite.transforms import RESCALE, TRANSFORMS, rescale

        rescaling = partial(rescale, scratch=tempfile.TemporaryFile, open_hashing=hashing)
        return {**TRANSFORMS, RESCALE: rescaling}

    def entries_reader(self) -> EntriesReader:
        from stateshift.engines.flink.entries.image import comparable

        return comparable

    def judge(self, at: ImageAt, deep: DeepCheck | None, fleet: Readers | None) -> Judged:
        from stateshift.engines.flink.check.judgement import judge

        return judge(at, deep)

    def way_out(
        self, path: str, location: str, images: Sequence[str], restorable: bool
    ) -> str | None:
        return None if restorable else f"restore {path} from a copy of the checkpoint"

    def find_repair(self, location: str, also: Sequence[str], opening: Opening) -> Repair:
        raise PlanError(
            f"{location} holds an image of Flink: only files that are elsewhere can be collected",
            hint="name the folders that may have them: --files LOCATION",
        )

    def first_entries(self, storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
        from stateshift.engines.flink.views.elements import first_entries

        return first_entries(storage, survey, limit)

    def diff(
        self, one: str, other: str, opening: Opening, show: int, fleet: Readers | None
    ) -> Differences:
        from stateshift.engines.flink.views.diff import diff

        return diff(one, other, opening, show)

    def export(self, location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
        from stateshift.engines.flink.views.elements import export

        return export(location, wanted, format, opening)

    def import_rows(
        self,
        template: str,
        rows: Iterable[RowBatch],
        wanted: Wanted,
        into: Storage,
        opening: Opening,
    ) -> PreparedState:
        import tempfile

        from stateshift.engines.flink.rewrite.row_import import Template, import_rows
        from stateshift.engines.flink.views.elements import open_image, text_rows

        given = Template(template, *open_image(template, opening), text_rows)
        return import_rows(given, rows, wanted, into, tempfile.TemporaryFile)

    def decode_file(
        self, storage: Storage, name: str, location: str, opening: Opening
    ) -> DecodedFile:
        raise PlanError(
            f"a single file of a Flink image says nothing alone: {location}",
            hint="stateshift inspect FOLDER   # the folder that has _metadata",
        )

    def fence_of(self, storage: Storage) -> str | None:
        return None

    def fence_paths(self, storage: Storage) -> None:
        return None

    def read_sink(self, sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]) -> None:
        return None

    def files_of_planned(self, image: Image) -> tuple[str, ...]:
        return ()

    def output_read(
        self, sink: SinkSpec, writer: Survey, reader: Survey, opening: Opening
    ) -> OutputRead:
        return "nothing"

    def ask_inputs(self, job: JobSpec, survey: Survey, opening: Opening) -> tuple[InputFacts, ...]:
        return ()

    def ask_tables(self, job: JobSpec, facts: Facts, opening: Opening) -> tuple[TableFacts, ...]:
        return ()

    def ask_positions(
        self,
        job: JobSpec,
        survey: Survey,
        opening: Opening,
        open_topics: OpenTopics,
        patience: Patience,
    ) -> tuple[NewPosition, ...]:
        from stateshift.engines.flink.survey.questions import ask_positions
        from stateshift.engines.repositioning import Outside

        return ask_positions(survey, Outside(job, opening, open_topics, patience))

    def offsets_read(
        self, job: JobSpec, survey: Survey, opening: Opening
    ) -> Mapping[str, Sequence[Mapping[int, int]]]:
        return {}

    def repositioned_files(
        self, survey: Survey, positions: Sequence[NewPosition], opening: Opening
    ) -> Mapping[str, tuple[bytes, bytes]]:
        return {}

    def taken_along(self, job: JobSpec, number: int, image: Image) -> Image:
        from stateshift.engines.flink.rewrite.choice import take_along

        return take_along(job, number, image)


ENGINE: Engine = FlinkEngine()
