"""An image looked at from a program: inspect, verify, export, diff, check. Reads only."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.api.values import (
    CodeCheck,
    ImageDiff,
    ImageVerdict,
    Inspection,
    RunVerdict,
    StateExport,
)
from stateshift.errors import FormatError, PlanError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from stateshift.api.requests import SpecLike
    from stateshift.check import Code
    from stateshift.check.verdict import Checked
    from stateshift.documents.survey import SurveyFacts
    from stateshift.migration import Adapters
    from stateshift.report import Report
    from stateshift.storage.locations import Location
    from stateshift.storage.protocol import Storage

    Place = str | os.PathLike[str] | Location


def inspect(
    location: Place,
    *,
    uids: Sequence[str] = (),
    files: bool = False,
    sources: bool = False,
    entries: int = 0,
    adapters: Adapters | None = None,
) -> Inspection:
    """Look at an image, a workflow directory or a single file.

    Args:
        location: a URL or a local path.
        uids: names of operators to look for, and to name operators by.
        files: list every file, and whether a restart needs it.
        sources: list the position in each partition of every source.
        entries: how many entries of each store to decode.
        adapters: how storages are opened, where a test has its own.

    Returns:
        The contents; `to_dict()` is the document of `stateshift inspect --json`.

    Raises:
        NothingThere: nothing is at the location.
        FormatError: bytes are not what their format says.
        StorageError: the location cannot be read.
    """
    from stateshift import look
    from stateshift.documents.survey import first_entries, survey_facts

    place, opening = place_of(location), opening_of(adapters)
    seen = look.inspect(place, opening)
    if seen.survey is None:
        return Inspection(place, file=seen.file)
    facts = survey_facts(seen.survey, list(uids), files, sources)
    if entries:
        shown = look.entries(place, opening, entries + 1)
        facts = replace(facts, entries=first_entries(shown, entries))
    return Inspection(place, _with_standby(facts, opening(place), adapters))


def _with_standby(facts: SurveyFacts, storage: Storage, adapters: Adapters | None) -> SurveyFacts:
    """Return the facts, and the standby that is kept there or where the job has one; or that a
    state file is damaged.
    """
    from stateshift import look
    from stateshift.api.drills import with_drills
    from stateshift.documents.standby import StandbyFacts
    from stateshift.errors import FormatError
    from stateshift.standby.location import find_standby
    from stateshift.survey import Finding

    try:
        standby = find_standby(storage)
    except FormatError as error:
        damage = Finding("warn", error.fact, hint=error.hint, path=error.path, offset=error.offset)
        return replace(facts, findings=(*facts.findings, damage))
    superseded = look.note_of_failover(storage, facts.survey)
    if standby is None:
        return replace(facts, superseded=superseded)
    now = time.time() if adapters is None else adapters.clock.now()
    return replace(facts, standby=with_drills(StandbyFacts(standby, now), storage))


def verify(
    location: Place,
    *,
    deep: bool = False,
    history: bool = True,
    part: tuple[int, int] | None = None,
    adapters: Adapters | None = None,
) -> ImageVerdict | RunVerdict:
    """Ask whether a job could restart from an image, or whether a run's work still holds.

    Args:
        location: an image, as a URL or a local path; or the workdir of a run.
        deep: read everything that a restart needs to its end.
        history: with `deep`, also hold each snapshot against the changes before it.
        part: with `deep`, read one part of the state only: (3, 30) is the third of thirty.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        The verdict; `ok` is the answer, `to_dict()` the document of `stateshift verify --json`.

    Raises:
        SpecError: there is no such part.
        FormatError: bytes are not what their format says.
        StorageError: the location cannot be read.
        JournalError: the workdir's journal is damaged.
    """
    from stateshift import look
    from stateshift.engines.views import DeepCheck, NumberedPart
    from stateshift.errors import Complaint, SpecError
    from stateshift.workdir import Workdir

    place = place_of(location)
    if "://" not in place and Workdir(place).exists:
        from stateshift import migration

        workdir = Workdir(place)
        verdict = migration.verify(workdir, adapters or migration.real_adapters())
        return RunVerdict(verdict, migration.status(workdir), str(workdir.path))
    number, of = (1, 1) if part is None else part
    if not 1 <= number <= of:
        message = f"({number}, {of}): expected (1, {of}) to ({of}, {of})"
        raise SpecError((Complaint("part", message),))
    how = DeepCheck(history, None if part is None else NumberedPart(number, of))
    return ImageVerdict(look.restartable(place, opening_of(adapters), deep, how=how))


def export(
    location: Place,
    *,
    operator: str | None = None,
    store: str | None = None,
    shard: int | None = None,
    batch: int | None = None,
    changes: tuple[int, int] | None = None,
    adapters: Adapters | None = None,
) -> StateExport:
    """Choose state to be read: all of an image's, or some of it.

    Args:
        location: an image, as a URL or a local path.
        operator: only this operator, by its id or its uid.
        store: only this store.
        shard: only this shard; of Flink, this subtask.
        batch: the state as this batch left it.
        changes: what these batches (first, last) did to the state, instead of the state.
        adapters: how storages are opened, where a test has its own.

    Returns:
        The state, read when `batches()`, `lines()`, `table()` or `save(file)` is called.

    Raises:
        SpecError: `batch` and `changes` are both given.
    """
    from stateshift.engines.views import Wanted
    from stateshift.errors import Complaint, SpecError

    if batch is not None and changes is not None:
        raise SpecError((Complaint("batch", "changes names its batches itself"),))
    wanted = Wanted(operator, store, batch, changes, shard=shard)
    return StateExport(place_of(location), wanted, opening_of(adapters))


def query(sql: str, *locations: Place, adapters: Adapters | None = None) -> pa.Table:
    """Ask the state of images by SQL. Needs the extra `sql`.

    Args:
        sql: one SELECT over their tables.
        locations: the images, as URLs or local paths.
        adapters: how storages are opened, where a test has its own.

    Returns:
        The rows of the answer.

    Raises:
        SpecError: it is no SELECT, or names what is not there.
        PlanError: there is no image; or DuckDB is not installed.
        FormatError: bytes are not what their format says.
        StorageError: a location cannot be read.
    """
    import pyarrow as pa

    from stateshift.table.query import answer
    from stateshift.table.tables import tables_of

    opening = opening_of(adapters)
    tables = tables_of([place_of(location) for location in locations], opening)
    with answer(sql, tables, opening) as given:
        return pa.Table.from_batches(given.batches, given.schema)


def use_descriptors(*paths: str | os.PathLike[str]) -> None:
    """Have this process show the messages of protobuf in Flink state by their fields' names.

    Args:
        paths: files of protoc --include_imports --descriptor_set_out=FILE. They replace those of
            an earlier call; without any, fields are shown by number.

    Raises:
        StorageError: a file cannot be read.
        FormatError: a file is no such file, or does not have all that its messages are made of.
    """
    from stateshift.formats import bounds
    from stateshift.formats.flink import protobuf

    contents = []
    try:
        for path in paths:
            with open(path, "rb") as file:
                contents.append(bounds.gather(iter(lambda: file.read(1 << 20), b""), str(path)))
        protobuf.use_descriptors(contents)
    except OSError as error:
        fact = f"{error.filename} cannot be read: {error.strerror}"
        raise StorageError(fact, location=str(error.filename)) from error
    except FormatError as error:
        raise error.at(", ".join(map(str, paths))) from error


def diff(a: Place, b: Place, *, show: int = 0, adapters: Adapters | None = None) -> ImageDiff:
    """Compare two images entry by entry.

    Args:
        a: an image, as a URL or a local path.
        b: another one. Entries that only `b` has are added, those that only `a` has are removed.
        show: how many differences of each store to decode.
        adapters: how storages are opened, where a test has its own.

    Returns:
        The differences; `equal` is the answer, `to_dict()` the document of
        `stateshift diff --json`.

    Raises:
        PlanError: one of them is no image.
        FormatError: bytes are not what their format says.
        StorageError: a location cannot be read.
    """
    from stateshift import look

    return ImageDiff(look.diff(place_of(a), place_of(b), opening_of(adapters), show))


def place_of(location: Place) -> str:
    """Return a location as the text that everything below takes."""
    return os.fspath(location) if isinstance(location, str | os.PathLike) else str(location)


def opening_of(adapters: Adapters | None) -> Callable[[str], Storage]:
    """Return the function that opens locations: it retries after failures that may pass."""
    if adapters is not None:
        return adapters.open_storage
    from stateshift.look import open_patiently

    return open_patiently


def check(
    location: Place,
    file: str,
    *,
    arguments: Sequence[str] = (),
    query: str | None = None,
    before: str | None = None,
    python: str | None = None,
    packages: Sequence[str] = (),
    stub: bool = False,
    batch_writes: bool = False,
    flink: str | None = None,
    main_class: str | None = None,
    parallelism: int | None = None,
    allow_non_restored: bool = False,
    timeout_seconds: float = 300.0,
    waive: Sequence[str] = (),
    rehearse: bool = False,
    adapters: Adapters | None = None,
) -> CodeCheck:
    """Have the engine plan a file, and hold its query or job against an image. Nothing starts.

    Args:
        location: the checkpoint of one query of Spark, or a savepoint or checkpoint of Flink.
        file: the Python file that starts the query; of Flink, a jar or a file of SQL.
        arguments: those of the file.
        query: the name of the query or job, if the file starts several.
        before: the code that wrote the state: its expressions are compared, too.
        python: the interpreter whose PySpark runs the file; None for this one.
        packages: further jars, as Maven's coordinates.
        stub: reach no source.
        batch_writes: let the file write tables that are no streams.
        flink: the distribution of Flink that plans the file; None for $FLINK_HOME.
        main_class: of a jar; None for the one that its manifest names.
        parallelism: as Flink will start the job; None as Flink is configured.
        allow_non_restored: whether Flink may drop state that no operator of the code reads.
        timeout_seconds: how long the file may take.
        waive: rules whose hazards are accepted.
        rehearse: start it from a fork in a scratch place, changed as the verdict asks for. A query
            of Spark runs one batch, without its sink. Of a job of Flink, the keyed operators are
            restored and opened in a local Flink. Nothing of it stays.
        adapters: how storages are opened, and whom progress is told; None for the real ones.

    Returns:
        The verdict; `to_dict()` is the document of `stateshift check --json`.

    Raises:
        PlanError: the file fails, starts no such query or job, or does not end in time.
        SpecError: there is no such file, interpreter, or distribution of Flink.
        NothingThere: there is no checkpoint.
        FormatError: bytes are not what their format says.
        StorageError: the location cannot be read.
    """
    from stateshift.check import Code
    from stateshift.check import check as check_code

    code = Code(
        file=file,
        arguments=tuple(arguments),
        before=before,
        python=python,
        packages=tuple(packages),
        stub=stub,
        batch_writes=batch_writes,
        flink=flink,
        main_class=main_class,
        parallelism=parallelism,
        allow_non_restored=allow_non_restored,
        timeout_seconds=timeout_seconds,
    )
    if rehearse and stub:
        raise _without_sources("--stub replaces them")
    opening = opening_of(adapters)
    if adapters is not None:
        adapters.meter.phase(file, "plan", 0, 0)
    checked = check_code(place_of(location), code, query, tuple(waive), opening)
    return CodeCheck(_rehearsed(checked, code, adapters) if rehearse else checked)


def _rehearsed(checked: Checked, code: Code, adapters: Adapters | None) -> Checked:
    """Return a verdict with what a start from a fork showed; `never` is not tried."""
    from stateshift.check.flink import checking as flink
    from stateshift.check.spark import checking as spark
    from stateshift.documents.check import spec_for

    if checked.stubbed:
        raise _without_sources("this machine does not reach all of them")
    (query,) = checked.queries
    if query.verdict == "never" or not query.has_commands:
        return checked  # no state is there from which Spark would start it
    with tempfile.TemporaryDirectory(prefix="stateshift-rehearsal-") as scratch:
        fork = f"{scratch}/checkpoint"
        spec = spec_for(query.changes, checked.image, checked.engine)
        (job,) = spec["jobs"]
        job = {**job, "remote_location": fork, "mode": "fork", "sync": False}
        job["waive"] = ["open-transactions"]  # the running job's
        rehearsed_copy({**spec, "jobs": [job]}, f"{scratch}/run", adapters)
        rehearse = flink.rehearse if checked.engine == "flink" else spark.rehearse
        if adapters is not None:
            adapters.meter.phase(code.file, "rehearse", 0, 0)
        judged = rehearse(query, code, fork).judged(query)
    return replace(checked, queries=(judged,))


def rehearsed_copy(spec: SpecLike, workdir: str, adapters: Adapters | None) -> Report:
    """Make the copy that a rehearsal starts from. No policy is asked: it is thrown away."""
    from stateshift import migration
    from stateshift.api.requests import spec_of
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    reached = replace(adapters or migration.real_adapters(), policies=migration.no_policies)
    proposal = migration.propose(spec_of(spec), reached, place)
    with migration.open_fleet(reached, None, proposal.spec, place) as manned:
        return migration.apply(proposal, "rehearsal", place, manned)


def _without_sources(fact: str) -> PlanError:
    return PlanError(
        f"a rehearsal reads the query's own sources, and {fact}",
        hint="rehearse it where they can be read, with --packages for their connectors",
    )
