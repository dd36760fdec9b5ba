"""The commands by which images are moved, divided or collected."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated

import typer

from stateshift.cli.shell.options import (
    CopyOptions,
    Fork,
    ForkOptions,
    ImageOptions,
    LocalRunOptions,
    NoSync,
    RunOptions,
    Source,
    To,
    Waive,
    WasAt,
    argument,
    flag,
    names_in,
    option,
)
from stateshift.cli.shell.shortcut import (
    Keys,
    drop_empty,
    one_job,
    run_jobs,
    shortcut,
)
from stateshift.cli.shell.terminal import Terminal

# The name of a cluster in the spec that is written.
PERSON = "person"


@shortcut(
    "stateshift move /data/orders --to s3://lake/orders\n"
    "stateshift move /data/orders --to s3://lake/orders --start ./start-orders\n"
    "stateshift move /data/orders --to /new/orders --warm --stop ./stop --start ./start "
    "--restart ./start",
    e0="the image is at its target; with --start, its job has committed",
    e7="a cluster or the fleet failed",
    stops_jobs=True,
)
def move(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    start: Annotated[
        str | None,
        option(
            "--start",
            "COMMAND",
            "Starts the job at its new place: a shell command. It finds the location in "
            "$STATESHIFT_CHECKPOINT. The move ends when that job has committed.",
        ),
    ] = None,
    stop: Annotated[
        str | None,
        option(
            "--stop",
            "COMMAND",
            "Stops the job where it runs now: a shell command. It finds the location in "
            "$STATESHIFT_CHECKPOINT. Needs --start.",
        ),
    ] = None,
    restart: Annotated[
        str | None,
        option(
            "--restart",
            "COMMAND",
            "Starts the job again where it was, if the move fails or is rolled back. Needs --stop.",
        ),
    ] = None,
    warm: Annotated[
        bool,
        flag(
            "--warm",
            "Copy while the job runs, and stop it for the last batches. Without --stop you "
            "are asked to stop it.",
        ),
    ] = False,
    was_at: WasAt = None,
    waive: Waive = None,
) -> int:
    """Move a job's image; with --start, start the job there.

    Writes the spec, shows the plan, asks, and carries it out. Without --stop, stop the job
    yourself first; the old image is fenced. The spec is kept in the workdir: edit and `apply` it
    if you need more than these options.
    """
    from stateshift.specification.options import NEW_COMMANDS, OLD_COMMANDS
    from stateshift.storage.locations import job_name

    if stop is not None and start is None:
        raise typer.BadParameter("--stop needs --start: a job that is stopped is started again")
    if restart is not None and stop is None:
        raise typer.BadParameter("--restart needs --stop: a job that is not stopped runs on")
    job = one_job(source, to, [], CopyOptions(waive))
    keys, clusters = Keys(), Keys()
    if warm:
        keys["mode"] = "warm"
    if start is not None:
        keys |= {"target_cluster": NEW_COMMANDS, "submit": {}}
    if restart is not None:
        keys["source_submit"] = {}
    if stop is not None:
        keys["source_cluster"] = NEW_COMMANDS if restart is None else OLD_COMMANDS
    elif warm:
        keys["source_cluster"] = PERSON
        clusters[PERSON] = {"kind": "manual"}
    for name, command in ((NEW_COMMANDS, start), (OLD_COMMANDS, restart)):
        if command is not None:
            # A resume may be typed elsewhere, and means the same commands.
            clusters[name] = drop_empty(kind="command", submit=command, cwd=os.getcwd(), stop=stop)
    job |= {"name": job_name(source, to), **drop_empty(was_at=was_at), **keys}
    return run_jobs(terminal, options, [job], clusters=clusters)


@shortcut(
    "stateshift split /data/orders --to /data/orders-a --to /data/orders-b\n"
    "stateshift split /data/orders --to /eu --to /us --column country --values de,fr --values us\n"
    "stateshift split /data/savepoint-1 --to /a --to /b --operators source-a,sum-a "
    "--operators source-b,sum-b"
)
def split(
    terminal: Terminal,
    options: ForkOptions,
    source: Source,
    to: Annotated[list[str], option("--to", "LOCATION", "Where a part goes; once per part.")],
    column: Annotated[
        str | None, option("--column", "NAME", "The key column that decides; else shards do.")
    ] = None,
    values: Annotated[
        list[str] | None,
        option("--values", "V,V…", "The column's values in a part; once per part, in its order."),
    ] = None,
    operators: Annotated[
        list[str] | None,
        option("--operators", "UID,…", "Of a savepoint: the operators of a part; once per part."),
    ] = None,
) -> int:
    """Divide a job's state into several images.

    A Spark checkpoint is divided by ranges of shards, or by the values of a key column. Each
    part is a query of its own; give its job only the input of its own keys. A Flink savepoint
    is divided by operators.
    """
    _refuse_mismatch(to, column, values or [], operators or [])
    jobs: list[Keys] = []
    if operators:
        for number, (target, names) in enumerate(zip(to, operators, strict=True)):
            job = one_job(source, target, [], options)
            jobs.append({**job, "name": f"part-{number}", "operators": names_in(names)})
        return run_jobs(terminal, options, jobs, "flink")
    if column is not None:
        parts: list[Keys] = [{"column": column, "values": part} for part in values or ()]
    else:
        parts = [{"by": len(to), "part": number} for number in range(len(to))]
    for number, (target, part) in enumerate(zip(to, parts, strict=True)):
        job = one_job(source, target, [{"kind": "split", **part}], options)
        jobs.append({**job, "name": f"{job['name']}-{number}"})
    return run_jobs(terminal, options, jobs)


def _refuse_mismatch(
    to: list[str], column: str | None, values: list[str], operators: list[str]
) -> None:
    """Refuse options that do not say the same number of parts, or that do not go together."""
    values_expected = 0 if column is None else len(to)
    if len(values) != values_expected:
        raise typer.BadParameter(
            "--column and --values go together, with one --values for each --to"
        )
    operators_expected = 0 if column else len(to)
    if operators and len(operators) != operators_expected:
        raise typer.BadParameter(
            "--operators is for savepoints, with one --operators for each --to"
        )
    _refuse_twice("--values", values)
    _refuse_twice("--operators", operators)


def _refuse_twice(flag: str, parts: list[str]) -> None:
    """Refuse what two parts take along: it would go on in two jobs."""
    seen: set[str] = set()
    for part in parts:
        names = {name.strip() for name in part.split(",")}
        twice = sorted(names & seen)
        if twice:
            raise typer.BadParameter(f"{flag} names {twice[0]!r} in two parts")
        seen |= names


@shortcut("stateshift merge /data/eu /data/us --to /data/orders")
def merge(
    terminal: Terminal,
    options: ImageOptions,
    sources: Annotated[
        list[str], argument("LOCATION…", "The checkpoints; the first one gives the batch number.")
    ],
    to: To,
    sum: Annotated[
        list[str] | None,
        option("--sum", "COLUMN", "Add its values where a key is in several checkpoints."),
    ] = None,
    union: Annotated[
        str | None,
        option("--union", "ID,…", "Operators of Flink that are in several and become one, by uid."),
    ] = None,
) -> int:
    """Merge the state of several images.

    Flink: the new savepoint has the operators of all. Operators named by --union become one;
    their keys must differ. Spark: the checkpoints must be of one query that ran over different
    inputs. The new job reads the sources of the first checkpoint, then those of the others, in
    this order.
    """
    first, *others = sources
    if not others:
        raise typer.BadParameter("merge takes two checkpoints, or more")
    changes = [drop_empty(kind="merge", locations=others, sum=sum)]
    if union:
        changes.append({"kind": "union", "operators": names_in(union)})
    job = one_job(first, to, changes, options)
    return run_jobs(terminal, options, [job], "flink" if union else None)


@shortcut("stateshift gather hdfs://nn/checkpoints/5f2c.../chk-42 --to s3://bucket/orders", e7=None)
def gather(
    terminal: Terminal, options: LocalRunOptions, source: Source, to: To, waive: Waive = None
) -> int:
    """Collect the files of a Flink image in one folder.

    Checkpoints that are incremental, or have a changelog or merged files, refer to files by
    full paths and share them with other checkpoints. The new image uses relative paths only,
    so its folder can be moved.
    """
    return run_jobs(terminal, options, [one_job(source, to, [], CopyOptions(waive))], "flink")


@shortcut(
    "stateshift repair /data/orders --to /data/orders-2 --also s3://dr/orders\n"
    "stateshift repair s3://dr/orders --to s3://dr/orders-2 --was-at s3://lake/orders\n"
    "stateshift repair /ckpts/5f2c.../chk-42 --files /savepoints/savepoint-1 --to /ckpts/repaired",
    e7=None,
)
def repair(
    terminal: Terminal,
    options: LocalRunOptions,
    source: Source,
    to: To,
    also: Annotated[
        list[str] | None,
        option(
            "--also",
            "LOCATION",
            "A standby, a fork or a backup of the same job, which may have the files that are "
            "damaged. Spark only. Repeatable.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        option("--files", "LOCATION", "Where to look for files of a Flink image. Repeatable."),
    ] = None,
    was_at: WasAt = None,
    waive: Waive = None,
    fork: Fork = False,
) -> int:
    """Put a new image together from what is whole.

    The new image of a damaged Spark checkpoint is the newest batch that can be made whole: with an
    older snapshot and the changes since, with files of a copy (--also), or with logs that follow
    from others. The plan names these files. Batches after that one run again. The damaged
    checkpoint stays as it is.

    A Spark checkpoint that was copied by other means (distcp, a renamed bucket) may name the place
    where it was made: --was-at. The new image names its own. With --was-at alone nothing is looked
    for: the checkpoint is moved, and fenced as `stateshift move` does it.

    After a CLAIM restore from a native savepoint, checkpoints of Flink 2.2 and 2.3 look for
    the savepoint's files in their own folder. The files are not there, so the restore fails
    (FLINK-39964). The new image holds the files that are found in --files.
    """
    if files and (was_at or also or fork):
        raise typer.BadParameter("--files is for Flink; --also, --was-at and --fork are for Spark")
    if files:
        job = one_job(source, to, [{"kind": "repair", "files": files}], CopyOptions(waive))
        return run_jobs(terminal, options, [job], "flink")
    changes: list[Keys] = []
    if also or not was_at:
        from stateshift import look

        terminal.say(f"{source}: looking for the newest batch that is whole")
        found = look.find_repair(source, also or (), terminal.opening())
        keys = {key: value for key, value in asdict(found).items() if key != "files"}
        changes = [drop_empty(kind="repair", **keys)]
    job = one_job(source, to, changes, CopyOptions(waive, fork))
    if was_at:
        from stateshift.storage.locations import job_name

        job |= {"name": job_name(source), "was_at": was_at}
    return run_jobs(terminal, options, [job], "spark")


@shortcut(
    "stateshift import counts.parquet --template /data/orders --to /data/orders-2 --store default\n"
    "stateshift import rows.jsonl --template /data/orders --to /data/orders-2\n"
    "stateshift import \"select key, {'count': value.count + 1} as value from state_0\" "
    "--template /data/orders --to /data/orders-2",
    e7=None,
)
def import_(
    terminal: Terminal,
    options: LocalRunOptions,
    rows: Annotated[
        list[str],
        argument("ROWS…", "Files (.parquet, .arrow, .jsonl), or one SELECT, as `query` takes it."),
    ],
    template: Annotated[
        str, option("--template", "LOCATION", "The image that all else is taken from.")
    ],
    to: To,
    operator: Annotated[
        str | None, option("--operator", "N", "Whose rows they are, if they do not say it.")
    ] = None,
    store: Annotated[
        str | None, option("--store", "S", "Of which store, if they do not say it.")
    ] = None,
    waive: Waive = None,
    no_sync: NoSync = False,
) -> int:
    """Copy a template, with rows as its state.

    The template is a checkpoint of Spark, or a canonical savepoint of Flink.

    The inverse of `export`: rows have the columns key and value, and may have operator and store.
    They replace all entries of their stores; everything else is the template's. Each row goes to
    the shard, or the key group, of its key. A row that does not fit the types of the store, or a
    key that comes twice, is refused by its number, and nothing is written. The copy is a query of
    its own.
    """
    from stateshift import migration
    from stateshift.api.runs import refuse_another, run_name
    from stateshift.cli.shell.work import confirm
    from stateshift.cli.views.units import many
    from stateshift.engines.views import Wanted
    from stateshift.errors import SpecError
    from stateshift.specification import JobSpec
    from stateshift.storage.locations import job_name, normal
    from stateshift.table.rows import prepare_state
    from stateshift.workdir import Workdir

    if not options.yes and not terminal.someone_there:
        confirm(terminal, "", yes=False)  # before the rows are read, which may take a while
    run = run_name([job_name(to)], time.time(), os.urandom(2))
    workdir = os.path.abspath(options.workdir or os.path.join(options.workdirs, run))
    refuse_another(Workdir(workdir))
    places = [normal(place, os.getcwd()) for place in (template, to)]
    asked = JobSpec(job_name(to), places[0], target=places[1], waive=tuple(waive or ()))
    migration.keep_policies([asked], terminal.adapters())  # before the rows are read
    terminal.say(f"{template}: making state of {', '.join(rows)}")
    opening, place = terminal.opening(), os.path.join(workdir, "rows")
    if os.path.lexists(place):
        fact, hint = "it exists", "name another --workdir, or remove it if an import left it there"
        raise SpecError.of(place, fact, hint=hint)
    try:
        state = prepare_state(rows, template, Wanted(operator, store), opening(place), opening)
        for (its_operator, its_store), count in state.entries.items():
            entries = many(count, "entry", "entries")
            if state.kept is not None:
                same = state.kept.get((its_operator, its_store), 0)
                entries += f", {same} of them byte for byte the template's"
            terminal.say(f"operator {its_operator}, store {its_store}: {entries}")
        for warning in state.warnings:
            terminal.say(f"  warn: {warning}")
        job = one_job(template, to, state.changes, CopyOptions(waive, True, no_sync))
        return run_jobs(terminal, replace(options, workdir=workdir), [job])
    finally:
        if not Workdir(workdir).exists:  # no run has begun that would need them
            shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):
                os.rmdir(workdir)
