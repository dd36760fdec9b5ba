"""`stateshift merge`: the states of several checkpoints of one query, or of several savepoints,
as one.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Fork, NoSync, RunOptions, To, Waive, names_in
from stateshift.cli.shell.shortcut import drop_empty, fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog("stateshift merge /data/eu /data/us --to /data/orders")


def command(
    terminal: Terminal,
    options: RunOptions,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="LOCATION…", help="The checkpoints; the first one gives the batch number."
        ),
    ],
    to: To,
    sum: Annotated[
        list[str] | None,
        typer.Option(
            "--sum", metavar="COLUMN", help="Add its values where a key is in several checkpoints."
        ),
    ] = None,
    union: Annotated[
        str | None,
        typer.Option(
            "--union",
            metavar="ID,…",
            help="Operators of Flink that are in several and become one, by uid.",
        ),
    ] = None,
    waive: Waive = None,
    fork: Fork = False,
    no_sync: NoSync = False,
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
    job = one_job(first, to, changes, waive, fork_keys(fork, no_sync))
    return run_jobs(terminal, options, [job], "flink" if union else None)
