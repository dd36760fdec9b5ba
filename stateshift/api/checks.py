"""Will this code start from that state?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.api.images import opening_of, place_of
from stateshift.api.values import CodeCheck
from stateshift.errors import PlanError

if TYPE_CHECKING:
    from stateshift.api.images import Place
    from stateshift.api.requests import SpecLike
    from stateshift.check import Code
    from stateshift.check.verdict import Checked
    from stateshift.migration import Adapters
    from stateshift.report import Report


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
        MissingFile: there is no checkpoint.
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
