"""Spark's engine: `engines.protocol.Engine`. Each method imports its part when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.engines.spark.layout import METADATA, is_commit
from stateshift.errors import PlanError
from stateshift.specification.transform import Change, Import, Repair, find_change
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
    SinkFacts,
    Survey,
    TableFacts,
    image_around,
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
    from stateshift.world import EntriesReader, Transform


class SparkEngine:
    """Checkpoints of Structured Streaming, and workflow directories of them."""

    name = "spark"
    begins_with = METADATA
    leaves_out_shards = True
    decodes_files = True

    def recognises(self, storage: Storage) -> bool:
        return storage.stat(self.begins_with) is not None

    def survey(
        self,
        location: str,
        opening: Opening,
        thorough: bool = False,
        changes: Sequence[Change] = (),
    ) -> tuple[Storage, Survey]:
        from stateshift.engines.spark.survey.checkpoint import survey
        from stateshift.engines.spark.survey.mended import with_repair
        from stateshift.engines.spark.survey.own_places import with_own_places

        repair = find_change(changes, Repair)
        storage, changes = with_repair(opening(location), changes, opening)
        surveyed = survey(storage, thorough, changes=changes)
        if repair is not None and repair.take and not isinstance(repair, Import):
            from stateshift.engines.spark.check.copies import refused_copies

            refused = refused_copies(opening(location), repair, opening)
            surveyed = replace(surveyed, findings=(*surveyed.findings, *refused))
        return storage, with_own_places(storage, surveyed, opening)

    def own_part(self, spec: Spec, job: JobSpec, survey: Survey) -> Survey:
        from stateshift.engines.spark.survey.checkpoint import own_part

        return own_part(spec, job, survey)

    def misplaced(self, storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
        from stateshift.engines.spark.survey.endpoints import find_misplaced

        return find_misplaced(storage, files)

    def ask_source(self, cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
        return known

    def ask_target(
        self, cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
    ) -> ClusterFacts:
        return known

    def identity(self, facts: Facts) -> str:
        from stateshift.engines.spark.plan.fingerprint import identity_of

        return identity_of(facts)

    def is_copy(self, copy: Image, original: Image, job: JobSpec, target: str) -> bool:
        from stateshift.engines.spark.image import fork_id

        if None in (copy.identity, original.identity):
            return copy.path == original.path
        return copy.identity in (original.identity, fork_id(original, target))

    def lacks(self, originals: Sequence[Image], copy: Image) -> str | None:
        # Without its folder, an operator looks as if it had never been there.
        there: set[tuple[str, str]] = set()
        for original in originals:
            there.update((shard.operator, shard.store) for shard in original.shards)
        gone = sorted({(shard.operator, shard.store) for shard in copy.shards} - there)
        if not gone:
            return None
        operator, store = gone[0]
        return f"the state of operator {operator} ({store})"

    def times_written(self, survey: Survey) -> Mapping[int, float]:
        if len(survey.images) != 1:
            return {}
        commits = [file for file in survey.files if is_commit(file.path)]
        return {int(file.path.rpartition("/")[2]): file.modified for file in commits}

    def plan(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
        from stateshift.engines.spark.plan.move import plan

        return plan(spec, job, facts)

    def findings_at_start(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
        return ()  # a job of Spark is found by its checkpoint

    def plan_round(self, spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
        from stateshift.engines.spark.plan.rounds import round_plan

        return round_plan(spec, job, facts, stopping)

    def plan_standby(self, spec: Spec, job: JobSpec, facts: Facts) -> Plan:
        from stateshift.engines.spark.plan.standby import standby_plan

        return standby_plan(spec, job, facts)

    def as_copied(self, facts: Facts) -> Facts:
        from stateshift.engines.spark.plan.rounds import with_shortest_chains

        return with_shortest_chains(facts)

    def plan_hiding(self, job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
        from stateshift.engines.spark.plan.standby import hidden_plan

        return hidden_plan(job, facts, coming)

    def transforms(self) -> Mapping[str, Transform]:
        import tempfile
        from functools import partial

        from stateshift.engines.spark.rewrite.files import REWRITE_STATE
        from stateshift.engines.spark.rewrite.state import rewrite_state
        from stateshift.engines.spark.rewrite.transforms import TRANSFORMS

        # State that does not fit in memory is sorted in a file that has no name, and is gone with
        # its process.
        return {**TRANSFORMS, REWRITE_STATE: partial(rewrite_state, scratch=tempfile.TemporaryFile)}

    def entries_reader(self) -> EntriesReader:
        from stateshift.engines.spark.rewrite.comparison import comparable

        return comparable

    def judge(self, at: ImageAt, deep: DeepCheck | None, fleet: Readers | None) -> Judged:
        from stateshift.engines.spark.check.judgement import judge

        return judge(at, deep, fleet)

    def way_out(
        self, path: str, location: str, images: Sequence[str], restorable: bool
    ) -> str | None:
        from stateshift.engines.spark.check.judgement import way_out

        return way_out(path, location, image_around(path, images) or "", restorable)

    def find_repair(self, location: str, also: Sequence[str], opening: Opening) -> Repair:
        from stateshift.engines.spark.check.repair import find_repair

        return find_repair(location, also, opening)

    def first_entries(self, storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
        from stateshift.engines.spark.views.selection import first_entries

        return first_entries(storage, survey, limit)

    def diff(
        self, one: str, other: str, opening: Opening, show: int, fleet: Readers | None
    ) -> Differences:
        from stateshift.engines.spark.views.diff import diff

        return diff(one, other, opening, show, fleet)

    def export(self, location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
        from stateshift.engines.spark.views.export import export

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

        from stateshift.engines.spark.rewrite.row_import import Template, import_rows
        from stateshift.engines.spark.views.selection import open_images

        opened = open_images(template, opening)
        if len(opened.images) != 1 or opened.images[0].path:
            hint = "name the checkpoint of one query as the template"
            raise PlanError(f"{template} holds {len(opened.images)} queries", hint=hint)
        (image,) = opened.images
        given = Template(opened.storage, image, opened.views[image.path])
        return import_rows(given, rows, wanted, into, tempfile.TemporaryFile)

    def decode_file(
        self, storage: Storage, name: str, location: str, opening: Opening
    ) -> DecodedFile:
        from stateshift.engines.spark.views.selection import decode_at

        return decode_at(storage, name, location, opening)

    def fence_of(self, storage: Storage) -> str | None:
        from stateshift.engines.spark.survey.checkpoint import survey

        fences = [image.fence for image in survey(storage).images if image.fence is not None]
        return fences[0] if fences else None

    def fence_paths(self, storage: Storage) -> tuple[str, ...]:
        from stateshift.engines.spark.plan.move import fence
        from stateshift.engines.spark.survey.checkpoint import survey

        steps = tuple(fence("fence", survey(storage)))
        return steps[0].paths if steps else ()

    def read_sink(
        self, sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]
    ) -> SinkFacts | None:
        from stateshift.engines.spark.survey.sinks import read_sink

        return read_sink(sink, opening, back_to)

    def files_of_planned(self, image: Image) -> tuple[str, ...] | None:
        from stateshift.engines.spark.survey.file_sources import files_of_planned

        return files_of_planned(image)

    def output_read(
        self, sink: SinkSpec, writer: Survey, reader: Survey, opening: Opening
    ) -> OutputRead:
        from stateshift.engines.spark.survey.sinks import output_read

        return output_read(sink, writer, reader, opening)

    def ask_inputs(self, job: JobSpec, survey: Survey, opening: Opening) -> tuple[InputFacts, ...]:
        from stateshift.engines.spark.survey.inputs import ask_inputs
        from stateshift.engines.spark.survey.mended import with_repair

        def opening_mended(location: str) -> Storage:
            changes = job.transform if location == survey.location else ()
            return with_repair(opening(location), changes, opening)[0]

        return ask_inputs(job, survey, opening_mended)

    def ask_tables(self, job: JobSpec, facts: Facts, opening: Opening) -> tuple[TableFacts, ...]:
        from stateshift.engines.spark.survey.inputs import ask_tables

        return ask_tables(job, facts, opening)

    def ask_positions(
        self,
        job: JobSpec,
        survey: Survey,
        opening: Opening,
        open_topics: OpenTopics,
        patience: Patience,
    ) -> tuple[NewPosition, ...]:
        from stateshift.engines.repositioning import Outside
        from stateshift.engines.spark.survey.positions import ask_positions

        return ask_positions(survey, Outside(job, opening, open_topics, patience))

    def offsets_read(
        self, job: JobSpec, survey: Survey, opening: Opening
    ) -> Mapping[str, Sequence[Mapping[int, int]]]:
        from stateshift.engines.spark.survey.positions import offsets_read

        return offsets_read(job, survey, opening)

    def repositioned_files(
        self, survey: Survey, positions: Sequence[NewPosition], opening: Opening
    ) -> Mapping[str, tuple[bytes, bytes]]:
        from stateshift.engines.spark.survey.positions import repositioned_files

        return repositioned_files(survey, positions, opening)

    def taken_along(self, job: JobSpec, number: int, image: Image) -> Image:
        from stateshift.engines.spark.rewrite.move import leave_dropped

        return leave_dropped(job, image)


ENGINE: Engine = SparkEngine()
