"""`stateshift live move`, `bins`, `pause`, `resume` and `throttle`: bins of keys, at workers that
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from stateshift.cli.shell.options import Command, epilog
from stateshift.cli.shell.terminal import Terminal
from stateshift.live.cli import CheckOnly, GroupOf, option


@dataclass(frozen=True)
class MoveOptions:
    """How bins of a group are moved."""

    strategy: Annotated[
        str,
        option(
            "--strategy S",
            "all-at-once, fluid, batched(K), optimised, or warm: copied ahead, then all at once.",
        ),
    ] = "all-at-once"
    gap: Annotated[float, option("--gap SECONDS", "The pause behind a step.", min=0.0)] = 0.0
    lead: Annotated[
        float,
        option(
            "--lead SECONDS", "How far ahead of the furthest worker a step is proposed.", min=0.0
        ),
    ] = 2.0
    at: Annotated[
        int | None,
        option(
            "--at TIME", "Nothing moves before this logical time; a plan file begins then.", min=1
        ),
    ] = None
    prepared: Annotated[
        bool,
        option("--prepared", "Propose all steps together, each for its own time, --gap apart."),
    ] = False
    any_code: Annotated[
        bool, option("--any-code", "Also between workers that run other code, or another Python.")
    ] = False
    timeout: Annotated[
        float,
        option(
            "--timeout SECONDS",
            "Abort a step if not all workers have acknowledged it by then.",
            min=0.1,
        ),
    ] = 30.0
    wait: Annotated[
        float, option("--wait SECONDS", "How long to wait for a step to be complete.", min=0.0)
    ] = 60.0
    check: CheckOnly = False


def move(
    terminal: Terminal,
    options: MoveOptions,
    group: GroupOf,
    to: Annotated[str | None, option("--to WORKER", "The worker that gets them.")] = None,
    bins: Annotated[str | None, option("--bins BINS", "Their numbers: 0-127,200.")] = None,
    plan: Annotated[
        str | None,
        option(
            "--plan FILE",
            "Lines `M time worker …` and `D time bin worker …`, as Megaphone has them.",
        ),
    ] = None,
    rebalance: Annotated[
        str | None,
        option("--rebalance SHARE", "Even the state out, moving at most so much of it: 25%."),
    ] = None,
    by_rows: Annotated[
        bool,
        option("--by-rows", "With --rebalance: even the rows out that are folded, not the state."),
    ] = False,
) -> int | None:
    """Move bins between workers that run on.

    Each step is proposed for a time ahead of all workers. If one of them does not acknowledge it,
    the step is aborted and its bins stay. The next step begins once the one before is complete.
    After an interruption run the command again: it moves what is left.
    """
    from stateshift.live.cli import bin_moves

    steps_of = bin_moves.steps_asked(to, bins, plan, rebalance, by_rows)
    return bin_moves.carry_out(terminal, group, options, steps_of)


def show_or_resize(
    terminal: Terminal,
    group: GroupOf,
    to: Annotated[
        int | None, option("--to N", "Split or merge all bins until there are N.")
    ] = None,
    at: Annotated[
        int | None, option("--at TIME", "Each worker does so at this logical time.", min=1)
    ] = None,
    timeout: Annotated[
        float,
        option(
            "--timeout SECONDS", "Abort if not all workers have acknowledged it by then.", min=0.1
        ),
    ] = 30.0,
    wait: Annotated[
        float, option("--wait SECONDS", "How long to wait for all workers to do it.", min=0.0)
    ] = 60.0,
    check: CheckOnly = False,
) -> int | None:
    """Show which bins are hot, or split or merge all of them.

    With --to, every bin becomes two, or two bins become one, until there are so many. Two bins
    that become one must be at one worker. No job stops, and no key goes to another worker: each
    worker redistributes its own bins between two batches. Without --to it only reads.
    """
    from stateshift.live.bins.move_request import Manner
    from stateshift.live.cli.bin_moves import resize, show_count

    if to is None:
        return show_count(terminal, group)
    manner = Manner(at=at, timeout_seconds=timeout, wait_seconds=wait)
    return resize(terminal, group, to, manner, check)


def pause(terminal: Terminal, group: GroupOf) -> int | None:
    """Let no step of a move begin; the jobs run on.

    The step under way is carried out. The next one waits until `stateshift live resume`.
    """
    from stateshift.live.bins.controller import Controller
    from stateshift.live.cli.bin_moves import show_steering
    from stateshift.live.values import live_command

    controller = Controller(group)
    controller.pause()
    words = f"paused; to go on: {live_command('resume', group)}"
    return show_steering(terminal, controller, "paused", words)


def resume(terminal: Terminal, group: GroupOf) -> int | None:
    """Let steps of a move begin again.

    If the command that moved the bins has ended, run `stateshift live move` again: it moves what is
    left.
    """
    from stateshift.live.bins.controller import Controller
    from stateshift.live.cli.bin_moves import show_steering

    controller = Controller(group)
    controller.resume()
    is_carried = controller.carried is not None
    words = "moves go on" if is_carried else "nothing is paused; nobody moves bins now"
    return show_steering(terminal, controller, "running", words)


def throttle(
    terminal: Terminal,
    group: GroupOf,
    bins: Annotated[int | None, option("--bins N", "Bins a step at most.", min=1)] = None,
    gap: Annotated[
        float | None, option("--gap SECONDS", "The pause behind a step.", min=0.0)
    ] = None,
) -> int | None:
    """Change how fast bins move.

    Without options, they move again as `stateshift live move` said.
    """
    from stateshift.live.bins.controller import Controller
    from stateshift.live.cli.bin_moves import show_steering

    controller = Controller(group)
    controller.throttle(bins, gap)
    limits = []
    if bins is not None:
        limits.append(f"at most {bins} bins a step")
    if gap is not None:
        limits.append(f"{gap:g} s behind a step")
    words = ", ".join(limits) or "as it was asked for"
    return show_steering(terminal, controller, "throttled" if limits else "running", words)


COMMANDS = {
    "move": Command(
        move,
        epilog(
            "stateshift live move s3://live/orders --to east --bins 0-127 --check\n"
            'stateshift live move s3://live/orders --to east --bins 0-127 --strategy "batched(16)"'
            "\nstateshift live move s3://live/orders --to east --bins 0-127,200 --strategy warm\n"
            "stateshift live move s3://live/orders --rebalance 25% --strategy fluid --gap 0.5\n"
            "stateshift live move s3://live/orders --rebalance 25% --by-rows --check\n"
            "stateshift live move s3://live/orders --plan moves.txt --at 1772000000000",
            *(2, 3, 4, 6, 7, 9, 130),
            e0="moved, and all of it is complete (--check: it could be)",
            e2="the request, the bins or the plan file is not valid",
            e3="a file of the group is not what its format says",
            e4="the bins cannot go there, the time is past, or another move is under way",
            e7="aborted: a worker refused, or did not answer in time; steps that were decided are "
            "moved",
            e9="decided, and not complete within --wait; run the command again: it waits for the "
            "rest",
            e130="interrupted; run the command again: it moves what is left",
        ),
    ),
    "bins": Command(
        show_or_resize,
        epilog(
            "stateshift live bins s3://live/orders\n"
            "stateshift live bins s3://live/orders --to 512 --check\n"
            "stateshift live bins s3://live/orders --to 512\n"
            "stateshift live bins s3://live/orders --to 256 --at 1772000000000",
            *(2, 3, 4, 6, 7, 9, 130),
            e0="shown, or all workers have it (--check: they could)",
            e2="the number is no power of two, or a key that Spark alone hashes",
            e3="a file of the group is not what its format says",
            e4="halves are apart, bins are on their way, a worker is too old, or the time is past",
            e7="aborted: a worker refused, or did not answer in time; nothing has changed",
            e9="decided, and not all have it within --wait; run the command again: it waits for "
            "them",
            e130="interrupted; run the command again: it waits for those that are left",
        ),
    ),
    "pause": Command(
        pause,
        epilog(
            "stateshift live pause s3://live/orders",
            *(2, 3, 4, 6),
            e0="paused: the step under way is carried out, no other begins",
            e4="the group has no bins",
        ),
    ),
    "resume": Command(
        resume,
        epilog(
            "stateshift live resume s3://live/orders",
            *(2, 3, 4, 6),
            e0="whoever moves bins goes on",
            e4="the group has no bins",
        ),
    ),
    "throttle": Command(
        throttle,
        epilog(
            "stateshift live throttle s3://live/orders --bins 4 --gap 1\n"
            "stateshift live throttle s3://live/orders",
            *(2, 3, 4, 6),
            e0="set: whoever moves bins obeys from the next step on",
            e4="the group has no bins",
        ),
    ),
}
