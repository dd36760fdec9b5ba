"""`stateshift check`: will this code start from that state? Reads only, and starts no query."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from stateshift.cli.shell.options import (
    Format,
    Overwrite,
    argument,
    command,
    flag,
    option,
    refuse_replacing,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import PlanError, VerifyError

EXIT_CODES = {
    "starts": 0,
    "not-known": VerifyError.exit_code,
    "starts-but": VerifyError.exit_code,
    "starts-after": PlanError.exit_code,
    "never": PlanError.exit_code,
}


@command(
    "stateshift check s3://bucket/checkpoints/orders --with job.py\n"
    "stateshift check /checkpoints/orders --with job.py --before main/job.py --stub -- --env prod\n"
    "stateshift check /checkpoints/orders --with job.py --write-spec mend.json\n"
    "stateshift check /checkpoints/orders --with job.jar --class org.acme.Orders -- --env prod\n"
    "stateshift check /savepoints/savepoint-1 --with job.jar --flink /opt/flink -- --env prod",
    (2, 3, 4, 5, 6),
    e0="the code starts from this state",
    e4="it does not: not at all, or only after the commands that are printed; or the file fails",
    e5="it starts, and would take the state for something else; or that is not known",
)
def check(
    terminal: Terminal,
    location: Annotated[str, argument("IMAGE", "A checkpoint or savepoint: a URL or a path.")],
    arguments: Annotated[
        list[str] | None, argument("-- ARGUMENTS", "Of the file.", show_default=False)
    ] = None,
    code: Annotated[
        str,
        option("--with", "FILE", "A Python file, notebook or jar; of Flink, a jar or SQL."),
    ] = "",
    query: Annotated[
        str | None, option("--query", "NAME", "The query or job, if the file starts several.")
    ] = None,
    before: Annotated[
        str | None,
        option("--before", "FILE", "The code that wrote the state: its expressions are compared."),
    ] = None,
    python: Annotated[
        str | None, option("--python", "PATH", "The interpreter whose PySpark runs the file.")
    ] = None,
    packages: Annotated[
        list[str] | None,
        option("--packages", "COORDINATE", "Jars from Maven, as spark-submit has it. Repeatable."),
    ] = None,
    stub: Annotated[
        bool, flag("--stub", "Reach no source: an empty one of the same columns is put there.")
    ] = False,
    batch_writes: Annotated[
        bool, flag("--allow-batch-writes", "Let the file write tables that are no streams.")
    ] = False,
    flink: Annotated[
        str | None,
        option("--flink", "PATH", "The distribution of Flink that plans it: $FLINK_HOME."),
    ] = None,
    main_class: Annotated[
        str | None, option("--class", "NAME", "Of a jar; else the one that its manifest names.")
    ] = None,
    parallelism: Annotated[
        int | None, option("--parallelism", "N", "As Flink will start the job.", min=1)
    ] = None,
    allow_non_restored: Annotated[
        bool, flag("--allow-non-restored", "Flink may drop state that no operator reads.")
    ] = False,
    timeout: Annotated[
        float, option("--timeout", "SECONDS", "How long the file may take.", min=1)
    ] = 300.0,
    waive: Annotated[
        list[str] | None,
        option("--waive", "RULE", "A hazard that you take responsibility for. Repeatable."),
    ] = None,
    rehearse: Annotated[
        bool, flag("--rehearse", "Start it from a fork: one batch; of Flink, the keyed operators.")
    ] = False,
    write_spec: Annotated[
        str | None,
        option("--write-spec", "FILE", "Write the spec that makes the state fit, if one does."),
    ] = None,
    overwrite: Overwrite = False,
    format: Format = "text",
) -> int:
    """Check that code starts from a state.

    Runs the file in a local PySpark, or in a Flink without a cluster. Nothing starts, and nothing
    is written. The engine plans each query or job, and stateshift compares operators, sources and
    settings with those of the image: the code starts, starts after some commands, or never starts;
    or it starts, and the engine would not notice that the state means something else.
    """
    from stateshift import api
    from stateshift.api.local_files import write_whole
    from stateshift.cli.shell.progress import watching
    from stateshift.cli.views import check_text as render
    from stateshift.documents.check import queries_of, spec_for

    terminal.format_as(format)
    if not code:
        raise typer.BadParameter("name the file: --with job.py")
    if write_spec is not None:
        refuse_replacing(terminal, "--write-spec", write_spec, overwrite)
    with watching(terminal) as meter:
        checked = api.check(
            location,
            code,
            arguments=arguments or (),
            query=query,
            before=before,
            python=python,
            packages=packages or (),
            stub=stub,
            batch_writes=batch_writes,
            flink=flink,
            main_class=main_class,
            parallelism=parallelism,
            allow_non_restored=allow_non_restored,
            timeout_seconds=timeout,
            waive=waive or (),
            rehearse=rehearse,
            adapters=terminal.adapters(meter),
        )
    (own,) = checked.checked.queries
    terminal.is_paged = write_spec is None
    terminal.answer("check", checked.to_dict, render.check(queries_of(checked.checked), code))
    if write_spec is not None:
        if own.verdict == "starts-after" and own.has_commands:
            spec = spec_for(own.changes, checked.checked.image, checked.checked.engine)
            write_whole(write_spec, json.dumps(spec, indent=2) + "\n")
            terminal.say(f"stateshift apply {write_spec}")
        else:
            terminal.say(f"{write_spec} is not written: no change of the state is what it needs")
    return EXIT_CODES[own.verdict]
