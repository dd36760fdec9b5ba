"""The engine of the rest of the program: one object with these methods, and nothing else.

    survey, own_part, misplaced      what is there
    identity, plan, plan_round,      what is done to move it
    plan_standby, plan_hiding,
    as_copied, findings_at_start
    transforms, entries_reader       pure functions of files: the plans name the first, comparisons
                                     read with the second
    judge, way_out, find_repair, first_entries,   an image, for whoever looks at it without a run
    diff, export, import_rows, decode_file
    ask_source, ask_target           what clusters are asked of this engine's jobs alone
    fence_of, read_sink, ask_inputs, questions that a run asks beside
    ask_tables, ask_positions,
    offsets_read, repositioned_files,
    taken_along

An engine knows nothing of another one. Each method imports what it needs when it is called: who
looks at an image does not wait for the planner. The two that come with stateshift are
`engines.spark.engine.ENGINE` and `engines.flink.engine.ENGINE`; another package adds its own by an
entry point of the group `stateshift.engines` (see `registry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from stateshift.specification.transform import Change, Repair
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
)

if TYPE_CHECKING:
    from stateshift.clusters.protocol import Cluster
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


class Engine(Protocol):
    """One streaming system, and how it lays out its state. Every method only reads."""

    @property
    def name(self) -> str:
        """The engine as a spec writes it: `"engine": "spark"`."""
        ...

    @property
    def begins_with(self) -> str:
        """The file that an image's folder has, and that no other engine's has."""
        ...

    @property
    def decodes_files(self) -> bool:
        """Whether a single file of an image says something alone.

        Else the file that an image begins with stands for its whole folder. An engine
        that another package adds is asked for a single file where it recognises the file's folder.
        """
        ...

    @property
    def leaves_out_shards(self) -> bool:
        """Whether an export of this engine reads every so-many-th shard where that is wanted."""
        ...

    # ---- what is there

    def recognises(self, storage: Storage) -> bool:
        """Whether an image of this engine lies there, as far as a listing tells.

        Args:
            storage: the location that somebody named.
        Returns:
            True also where the image lies in a folder below, if there is no doubt which.
        Raises:
            StorageError: the location cannot be listed.
        """
        ...

    def survey(
        self,
        location: str,
        opening: Opening,
        thorough: bool = False,
        changes: Sequence[Change] = (),
    ) -> tuple[Storage, Survey]:
        """Survey what is at a location.

        Args:
            location: where to look.
            opening: opens a storage at a location.
            thorough: also read what only a verification needs.
            changes: what is to become of the state (`transform` of a job): some changes need to
                know more of it.
        Returns:
            The storage that the survey is of, which may be above or below the location, and the
            survey. The faults of an image are among its findings; a folder without an image gives a
            survey without images.
        Raises:
            StorageError: the location cannot be read.
            FormatError: a file says what nobody can go on from.
        """
        ...

    def own_part(self, spec: Spec, job: JobSpec, survey: Survey) -> Survey:
        """Return the part of a survey that belongs to one job.

        Args:
            spec: the whole request, which may divide one image among several jobs.
            job: the one that is asked for.
            survey: of the location that they share.
        Returns:
            The same survey where the job takes everything.
        Raises:
            PlanError: the parts contradict each other.
        """
        ...

    def misplaced(self, storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
        """Return the faults of a job's data directory, because it is no such directory.

        Args:
            storage: the directory that `data` of a job names.
            files: everything in it.
        """
        ...

    def ask_source(self, cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
        """Ask the cluster that a job runs on what only jobs of this engine are asked.

        Args:
            cluster: where the job runs. It need not know the words of this engine.
            job: the one that moves.
            known: what every cluster is asked.
        Returns:
            The same facts, and the answers.
        Raises:
            ClusterError: the cluster cannot be asked.
        """
        ...

    def ask_target(
        self, cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
    ) -> ClusterFacts:
        """Ask the cluster that a job is to go to, likewise.

        Args:
            cluster: where the job is to run.
            job: the one that moves.
            known: what every cluster is asked.
            source: the cluster that the job runs on, which may be the same one.
        Returns:
            The same facts, and the answers; what cannot be asked shows when the job is submitted.
        """
        ...

    # ---- what is done to move it

    def identity(self, facts: Facts) -> str:
        """Return the fingerprint of what a plan depends on: another one makes a plan stale.

        Args:
            facts: everything that was asked before planning.
        """
        ...

    def is_copy(self, copy: Image, original: Image, job: JobSpec, target: str) -> bool:
        """Whether an image is what a job makes of another one, as far as both say whose they are.

        Args:
            copy: an image at the target.
            original: an image of a source.
            job: what was asked for.
            target: where the copy is.
        """
        ...

    def lacks(self, originals: Sequence[Image], copy: Image) -> str | None:
        """Return the state that was copied and that none of the images it came from has any longer,
        where nothing in them says that something is missing; None where they have all of it.
        """
        ...

    def times_written(self, survey: Survey) -> Mapping[int, float]:
        """Return the time at which each epoch of the one image there was written: the commits of
        Spark's batches. Empty of a workflow, whose queries have epochs of their own.
        """
        ...

    def plan(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
        """Plan the move of one job: the halt, where there is one, and the move itself.

        Args:
            spec: the whole request.
            job: the one to plan.
            facts: the surveys, and what clusters, brokers and sinks said.
        Returns:
            Plans in the order in which they are run. Their findings say what must not be done, or
            should be known first.
        Raises:
            PlanError: the request cannot be planned at all.
        """
        ...

    def findings_at_start(self, spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
        """Return the findings on jobs that run, right before the new one is started.

        Args:
            spec: the whole request.
            job: one of which only the files of its image are known (`is_known_by_files`).
            facts: as they are now.
        """
        ...

    def plan_round(self, spec: Spec, job: JobSpec, facts: Facts, stopping: bool = False) -> Plan:
        """Plan one round of a warm move: copy what never changes again, while the job runs.

        Args:
            spec: the whole request.
            job: the one to plan.
            facts: as they are now; `facts.brought` is what earlier rounds copied.
            stopping: whether the job is being stopped meanwhile.
        """
        ...

    def plan_standby(self, spec: Spec, job: JobSpec, facts: Facts) -> Plan:
        """Plan what makes the files of the rounds an image that a job could start from.

        Args:
            spec: the whole request.
            job: the one to plan.
            facts: as they are now.
        """
        ...

    def as_copied(self, facts: Facts) -> Facts:
        """Return the facts with the images of the source as the target will have them: made of the
        files that rounds have copied.
        """
        ...

    def plan_hiding(self, job: JobSpec, facts: Facts, coming: Plan) -> Plan | None:
        """Plan what keeps a standby from being seen while the next round would tear it.

        Args:
            job: the one that moves warm.
            facts: as they are now.
            coming: the plan of the next round.
        Returns:
            None where that round tears nothing.
        """
        ...

    # ---- pure functions of files

    def transforms(self) -> Mapping[str, Transform]:
        """Return the transforms that this engine's plans name; every name begins with the engine's
        and a dot.
        """
        ...

    def entries_reader(self) -> EntriesReader:
        """Return the function that reads a shard's files as entries that can be compared."""
        ...

    # ---- for whoever looks at an image

    def judge(self, at: ImageAt, deep: DeepCheck | None, fleet: Readers | None) -> Judged:
        """Judge whether a job could restart from an image, and from which epochs.

        Args:
            at: the image, and where it is.
            deep: read what a restart needs to its end, as far as this says; None to go by names.
            fleet: processes that read with us; None to read alone.
        """
        ...

    def way_out(
        self, path: str, location: str, images: Sequence[str], restorable: bool
    ) -> str | None:
        """Return the hint for a damaged file.

        Args:
            path: the file.
            location: where the user finds the images.
            images: where the images lie below it.
            restorable: whether an earlier epoch gets around the damage.
        Returns:
            None where there is nothing to add.
        """
        ...

    def find_repair(self, location: str, also: Sequence[str], opening: Opening) -> Repair:
        """Return the repair that gives the newest epoch of a damaged image.

        Args:
            location: where the image is.
            also: copies that may have its files.
            opening: opens a storage at a location.
        Raises:
            PlanError: nothing is damaged, or no epoch can be put together.
        """
        ...

    def first_entries(self, storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
        """Yield the first entries of every store, by the names of their columns where known.

        Args:
            storage: the one that the survey is of.
            survey: the images to show.
            limit: how many entries of a store.
        Raises:
            FormatError: an entry cannot be read.
        """
        ...

    def diff(
        self, one: str, other: str, opening: Opening, show: int, fleet: Readers | None
    ) -> Differences:
        """Compare two images by their entries, whatever their files and shards.

        Args:
            one: the location of the first image.
            other: the location of the second.
            opening: opens a storage at a location.
            show: how many differing entries to return decoded.
            fleet: processes that read with us; None to read alone.
        Raises:
            PlanError: one of the two is no image of this engine.
        """
        ...

    def export(self, location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
        """Open an image's state as rows for other programs.

        Args:
            location: where the image is.
            wanted: which of its state.
            format: parquet, arrow or jsonl.
            opening: opens a storage at a location.
        Raises:
            PlanError: what can be refused without reading the state is refused here, not later.
        """
        ...

    def import_rows(
        self,
        template: str,
        rows: Iterable[RowBatch],
        wanted: Wanted,
        into: Storage,
        opening: Opening,
    ) -> PreparedState:
        """Write the files of state that rows make, for a copy of a template.

        Args:
            template: where the image is. It is only read.
            rows: what becomes state, in place of all entries of its stores.
            wanted: the operator and the store of rows that do not say theirs.
            into: where the files go, by their paths in an image.
            opening: opens a storage at a location.
        Raises:
            PlanError: the template, or a store of it, cannot take rows.
            SpecError: rows are of no store that is there, or have other columns.
            FormatError: a row does not fit; its number is told.
        """
        ...

    def decode_file(
        self, storage: Storage, name: str, location: str, opening: Opening
    ) -> DecodedFile:
        """Decode a single file. Called only where `decodes_files`.

        Args:
            storage: the folder of the file.
            name: the file in it.
            location: the file as it was named.
            opening: opens a storage at a location: what a file means may be said elsewhere.
        Raises:
            FormatError: the file is damaged, or no file of an image.
        """
        ...

    # ---- what a run asks beside

    def fence_of(self, storage: Storage) -> str | None:
        """Return the run that has fenced off the image there; None where none has, or where this
        engine's jobs need no fence.

        Args:
            storage: the source of a move.
        """
        ...

    def fence_paths(self, storage: Storage) -> tuple[str, ...] | None:
        """Return the files that a job would have to create for its next commit; None where this
        engine's jobs cannot be fenced by files.

        Args:
            storage: where the job's image is.
        """
        ...

    def read_sink(
        self, sink: SinkSpec, opening: Opening, back_to: Mapping[str, int]
    ) -> SinkFacts | None:
        """Read what the sink that a spec names has of these queries.

        Args:
            sink: as the spec names it.
            opening: opens a storage at a location.
            back_to: by query, the batch back to which to read.
        Returns:
            None where an image of this engine says enough of its sinks.
        """
        ...

    def files_of_planned(self, image: Image) -> tuple[str, ...] | None:
        """Return the files of the batch that an image has planned, and not committed; None where
        its other files cannot do without them.
        """
        ...

    def output_read(
        self, sink: SinkSpec, writer: Survey, reader: Survey, opening: Opening
    ) -> OutputRead:
        """Return the part of one job's output that another one has read, where the log of the sink
        tells it.

        Args:
            sink: where the other one writes, as its spec names it.
            writer: the image that the other one starts from.
            reader: the image that the one starts from.
            opening: opens a storage at a location.
        """
        ...

    def ask_inputs(self, job: JobSpec, survey: Survey, opening: Opening) -> tuple[InputFacts, ...]:
        """Look for the input that an image names and that stays where it is.

        Args:
            job: which says what of it moves along.
            survey: of the job's source.
            opening: opens a storage at a location.
        """
        ...

    def ask_tables(self, job: JobSpec, facts: Facts, opening: Opening) -> tuple[TableFacts, ...]:
        """Look for what the job reads next in the tables that it reads.

        Args:
            job: which says where they lie.
            facts: the surveys of the job's images.
            opening: opens a storage at a location.
        """
        ...

    def ask_positions(
        self,
        job: JobSpec,
        survey: Survey,
        opening: Opening,
        open_topics: OpenTopics,
        patience: Patience,
    ) -> tuple[NewPosition, ...]:
        """Find where the sources read on that the job's changes send elsewhere.

        Args:
            job: whose changes, and which brokers.
            survey: of the job's source.
            opening: opens a storage at a location.
            open_topics: opens the topics of brokers.
            patience: waits for a mirror that lags.
        """
        ...

    def offsets_read(
        self, job: JobSpec, survey: Survey, opening: Opening
    ) -> Mapping[str, Sequence[Mapping[int, int]]]:
        """Return the offsets of the topics that the job's changes reposition: those of its last
        epoch, and the ends of a planned one.

        Args:
            job: whose changes.
            survey: of the job's image.
            opening: opens a storage at a location.
        """
        ...

    def repositioned_files(
        self, survey: Survey, positions: Sequence[NewPosition], opening: Opening
    ) -> Mapping[str, tuple[bytes, bytes]]:
        """Return the files of an image that hold the positions of its sources: their content now,
        and with the new positions.

        Args:
            survey: of the job's image.
            positions: that were found.
            opening: opens a storage at a location.
        """
        ...

    def taken_along(self, job: JobSpec, number: int, image: Image) -> Image:
        """Return an image without the operators that the job's changes leave behind: what is wrong
        with those harms nobody.

        Args:
            job: whose changes.
            number: which of the job's images it is.
            image: as it was surveyed.
        """
        ...
