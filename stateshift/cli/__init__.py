"""The command line: the only place that prints, reads argv, or exits. One command a file.

    main        argv to exit code
    inspect, verify, export, diff, plan, apply, resume, rollback, status, runs, uid, schema
                a command each: reads its arguments, calls `migration` or `look`, shows the result
    reconfigure which operators of a dataflow change together
    cutover, pause, throttle
                ask something of a run at work, through its workdir (`steer`)
    compact, repartition, rewind, fork, convert, rename, split, merge, evolve, gather, repair
                one-job shortcuts: each writes a spec (`shortcut`) and runs it through plan and
                apply
    render_*    values to blocks of text; as_json: values to documents. Pure
    terminal    where it is said; failing: how errors are said; progress: how long work is watched

Importing this package imports nothing: help must answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stateshift.migration import Doors

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, doors: Doors | None = None) -> int | None:
    """Run one command. `doors` are how the outside world is reached, where it is not the real
    one.
    """
    from stateshift.cli.entry import enter

    return enter(argv, doors)
