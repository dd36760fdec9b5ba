"""`stateshift gather`: a Flink image, wherever its files lie, in one folder."""

from __future__ import annotations

from stateshift.cli.shell.options import LocalRunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog(
    "stateshift gather hdfs://nn/checkpoints/5f2c.../chk-42 --to s3://bucket/orders",
    e7=None,
)


def command(
    terminal: Terminal,
    options: LocalRunOptions,
    source: Source,
    to: To,
    waive: Waive = None,
) -> int:
    """Collect the files of a Flink image in one folder.

    Checkpoints that are incremental, or have a changelog or merged files, refer to files by
    full paths and share them with other checkpoints. The new image uses relative paths only,
    so its folder can be moved.
    """
    return run_jobs(terminal, options, [one_job(source, to, [], waive)], "flink")
