"""The commands that steer a warm move or a standby. All but `failover` ask something of a run
through its workdir, which the process that works on it heeds, or else the next `resume`.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import (
    RunOptions,
    Waive,
    WorkdirOf,
    argument,
    command,
    flag,
    option,
    overridden,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.text import Line
from stateshift.cli.views.units import size, span
from stateshift.errors import Interrupted, PlanError, SpecError

if TYPE_CHECKING:
    from stateshift.journal import CommandName, Progress
    from stateshift.workdir import Workdir

OVER = ("finished", "rolled-back")

StandbyPlace = Annotated[
    str,
    argument("LOCATION|WORKDIR", "Where the standby is, or the workdir of the run that keeps it."),
]
STOPPED = "the job is being stopped, or has been"


@command(
    "stateshift cutover .stateshift/20260301-120000-orders-1f3a",
    (2, 4, 8),
    e0="requested: `stateshift status WORKDIR --watch` shows when it happens",
    e4="there is no such run, or no job of it is waiting to be stopped",
)
def cutover(
    terminal: Terminal,
    workdir: WorkdirOf,
    now: Annotated[
        bool,
        flag(
            "--now",
            "At once, however much is left: the job is down for as long as that copy takes.",
        ),
    ] = False,
) -> int | None:
    """Let a warm move stop its job.

    The job stops as soon as what is left takes less time than `until` says; with --now it stops
    at once.
    """
    from stateshift import migration
    from stateshift.migration.standby_source import way_without
    from stateshift.report import SourceLostReport
    from stateshift.specification.grammars import seconds_of
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    progress = _refuse_over(terminal, place, "cutover")
    warm = [job for job in migration.spec_of(place).jobs if job.mode == "warm"]
    warm = [job for job in warm if job.name in progress.jobs]
    if not warm:
        raise PlanError(
            'no job of this run moves warm ("mode": "warm")', hint=_status_command(place)
        )
    for job in warm:
        lost = progress.lost.get(job.name)
        if lost is not None:
            engine = migration.spec_of(place).engine
            raise PlanError(
                f"{job.name}: nothing was changed: {SourceLostReport.of(lost).in_words(engine)}",
                hint=way_without(job),
            )
    if _is_halted(progress, place):
        raise PlanError(STOPPED, hint=_status_command(place))
    place.steering.ask_cutover(now)
    below = span(min(seconds_of(job.until) for job in warm))
    when = "at once" if now else f"as soon as less than {below} is left to copy"
    words = ", ".join(job.name for job in warm) + f": to be stopped {when}"
    live = place.steering.live() if place.held else None
    if live is not None and live.left:
        downtimes = [f"{job}: {span(rest.seconds)} left" for job, rest in live.left.items()]
        words += f" ({', '.join(downtimes)})"
    show_request(terminal, place, "asked", words, now=now)
    return None


@command(
    "stateshift pause .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift pause .stateshift/20260301-120000-orders-1f3a --off",
    (2, 4, 8),
    e0="paused after the current write, or continued",
    e4="there is no such run; or its job has been stopped: a pause would keep it down",
)
def pause(
    terminal: Terminal,
    workdir: WorkdirOf,
    off: Annotated[
        bool, flag("--off", "Continue; `stateshift resume WORKDIR` does the same.")
    ] = False,
) -> int | None:
    """Pause the copying of a warm move; its job runs on."""
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    progress = _refuse_over(terminal, place, "pause")
    if off:
        place.steering.pause(False)
        show_request(terminal, place, "running", "it goes on")
        return None
    where = quote(str(place.path))
    if not place.held:
        raise PlanError(
            "no process works on this run now: there is nothing to pause",
            hint=_status_command(place),
        )
    if _is_halted(progress, place):
        raise PlanError(
            f"{STOPPED}: a pause would keep it down",
            hint=f"stateshift rollback {where} takes the run back",
        )
    place.steering.pause(True)
    show_request(terminal, place, "paused", f"paused; to go on: stateshift pause {where} --off")
    return None


@command(
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a 20MB\n"
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a 20MB --operations 200\n"
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a none",
    (2, 4, 8),
    e0="set: a running process obeys at once, else the next `resume` does",
    e4="there is no such run, or it is over",
)
def throttle(
    terminal: Terminal,
    workdir: WorkdirOf,
    rate: Annotated[
        str, argument("RATE", "Bytes a second, read and written (50MB, 64MiB); none: no limit.")
    ],
    operations: Annotated[
        float | None, option("--operations", "N", "Requests a second at most.", min=0.1)
    ] = None,
) -> int | None:
    """Change how fast a run may go. Overrides the spec."""
    from stateshift.specification.grammars import rate as parse_rate
    from stateshift.steering import Throttle
    from stateshift.workdir import Workdir

    limit = None
    if rate.strip().lower() != "none":
        try:
            limit = parse_rate(rate)
        except ValueError as error:
            hint = "stateshift throttle WORKDIR 50MB"
            raise SpecError.of("RATE", str(error), hint=hint) from None
    place = Workdir(workdir)
    _refuse_over(terminal, place, "throttle")
    place.steering.throttle(Throttle(limit, operations))
    limits = []
    if limit:
        limits.append(f"at most {size(limit)} a second")
    if operations:
        limits.append(f"at most {operations:g} requests a second")
    show_request(
        terminal,
        place,
        "throttled" if limits else "running",
        ", ".join(limits) or "as fast as it goes",
        bytes_per_second=limit,
        operations_per_second=operations,
    )
    return None


@command(
    "stateshift failover hdfs://b/standby/orders\n"
    "stateshift failover hdfs://b/standby/orders --primary-is-down --yes\n"
    "stateshift failover hdfs://b/standby/orders hdfs://b/standby/totals --yes\n"
    "stateshift failover hdfs://b/standby/orders --watch",
    (2, 3, 4, 5, 6, 7, 8, 10, 130),
    e0="the jobs run at their standbys; of those that do already, the primaries are fenced",
    e3="the standby's state file is damaged, or of another version",
    e4="no standby is there, it cannot be started from, its primary cannot be fenced, or several "
    "have no common cut",
    e6="a storage failed; with --timeout: the primary gave no answer until then",
    e130="interrupted: `stateshift resume WORKDIR` continues, and --watch again",
)
def failover(
    terminal: Terminal,
    options: RunOptions,
    places: Annotated[
        list[str],
        argument(
            "LOCATION|WORKDIR…",
            "Where the standbys are, or the workdirs of the runs that keep them.",
        ),
    ],
    epoch: Annotated[
        list[str] | None,
        option(
            "--epoch",
            "N",
            "Start from this batch or checkpoint, of those that are kept. Of several jobs: "
            "LOCATION=N. Repeatable.",
        ),
    ] = None,
    primary_is_down: Annotated[
        bool,
        flag(
            "--primary-is-down",
            "Do not ask the primary: its job does not run, and cannot come back.",
        ),
    ] = False,
    waive: Waive = None,
    watch: Annotated[
        bool,
        flag(
            "--watch",
            "Of a job that runs at its standby: fence its primary as soon as it answers.",
        ),
    ] = False,
    timeout: Annotated[
        str | None, option("--timeout", "TIME", "With --watch: give up after this time.")
    ] = None,
) -> int | None:
    """Start a job from its standby: its region is gone.

    Needs the standby's storage and nothing else.

    Claims the location, so that the process that has fed it writes nothing there any more; fences
    the primary as far as it answers; starts the job, and waits for its first commit. Tells what
    was lost. Given again once the job runs there, it fences a primary that answers by now; with
    --watch, it waits until one does.

    Several jobs are claimed first, all or none, and start together. A job that reads what another
    one writes starts from an epoch at which it has read nothing that the other one does again.
    """
    from stateshift.api.failovers import (
        follow_primaries,
        refuse_unfinished,
        spec_of_failover,
        standbys_at,
        with_waivers,
    )
    from stateshift.cli.commands.advise import seconds_in
    from stateshift.cli.shell.launch import Request, launch
    from stateshift.cli.views import standby_text
    from stateshift.documents.standby import FencedDocument, StandbyFacts
    from stateshift.step.claims import takeover_error

    if timeout is not None and not watch:
        raise SpecError.of("--timeout", "is for --watch")
    if watch and (primary_is_down or waive or epoch is not None):
        what = "--epoch, --primary-is-down and --waive"
        raise SpecError.of("--watch", f"starts no job: leave out {what}")
    adapters = terminal.adapters()
    standbys = standbys_at(places, adapters)
    taken_over = [standby for standby in standbys if standby.is_taken_over]
    if watch or len(taken_over) == len(standbys):
        terminal.is_paged = False  # there may be another one to fence
        seconds_max: float | None = 0.0
        if watch:
            seconds_max = None if timeout is None else seconds_in(timeout, "--timeout")
        try:
            for fenced in follow_primaries(places, adapters, terminal.say, seconds_max):
                blocks = standby_text.primary_fenced(fenced)
                terminal.answer_value("failover", FencedDocument, fenced, blocks)
        except KeyboardInterrupt:
            fact = "interrupted: a primary is not fenced yet"
            raise Interrupted(fact, hint="the same command goes on") from None
        return None
    if taken_over:
        refuse_unfinished(taken_over[0], adapters)
        raise takeover_error(taken_over[0].location, taken_over[0].claim)
    epochs = read_epochs(epoch or (), [standby.location for standby in standbys])
    wanted = spec_of_failover(standbys, primary_is_down, epochs)
    spec = with_waivers(wanted, waive or ())
    for standby in standbys:
        terminal.talk(standby_text.standby(StandbyFacts(standby, adapters.clock.now())))
    spec = overridden(spec, options.parallel, options.throttle)
    return launch(terminal, options, Request(spec, typed=True))


def read_epochs(given: Sequence[str], locations: Sequence[str]) -> dict[str, int]:
    """Return the epochs that --epoch names, by location: N of the only one, or LOCATION=N."""
    epochs: dict[str, int] = {}
    for text in given:
        location, equals, number = text.rpartition("=")
        if not number.isdecimal() or (equals and not location):
            raise SpecError.of("--epoch", f"{text!r} is no epoch", text, "N or LOCATION=N")
        if not equals and len(locations) > 1:
            message = f"of which of {len(locations)} standbys?"
            expected = f"{locations[0]}={number}"
            raise SpecError.of("--epoch", message, text, expected)
        epochs[location or locations[0]] = int(number)
    return epochs


@command(
    "stateshift drill hdfs://b/standby/orders\n"
    "stateshift drill hdfs://b/standby/orders --yes --json",
    (2, 3, 4, 5, 6, 7, 8, 130),
    e0="the job went on from a copy of the standby; the copy and the job are gone again",
    e3="the standby's state file or its image is damaged",
    e4="no standby is there, nothing says how a drill is started, or the scratch place is not "
    "empty",
    e7="the job did not start; the copy and the job are gone again",
    e8="another drill of it is at work",
    e130="interrupted: `stateshift resume WORKDIR` continues, and throws away",
)
def drill(
    terminal: Terminal,
    options: RunOptions,
    place: StandbyPlace,
    spec: Annotated[
        str | None,
        option("--spec", "FILE", "The standby's spec, if its `drill` is another by now."),
    ] = None,
    waive: Waive = None,
) -> int | None:
    """Rehearse a failover, and throw away what was made for it.

    The standby is fed meanwhile, and stays as it is.

    Copies the standby to a scratch place, under a query id of its own; starts the job there as the
    spec's `drill` says, and waits for its first commit; then stops the job and removes the copy.
    Says how long each stage took. `status LOCATION` tells of the last drill.
    """
    from stateshift.api.drills import plan_drill, spec_of_drill
    from stateshift.api.failovers import standby_at, with_waivers
    from stateshift.api.requests import spec_of
    from stateshift.cli.shell.launch import Request, launch
    from stateshift.cli.shell.work import confirm

    if not options.yes and not terminal.someone_there:
        confirm(terminal, "", yes=False)  # before the reading, which may take a while
    adapters = terminal.adapters()
    given = None if spec is None else spec_of(spec)
    made = with_waivers(spec_of_drill(standby_at(place, adapters), given), waive or ())
    made = overridden(made, options.parallel, options.throttle)
    return launch(terminal, options, Request(made, saved=plan_drill(made, adapters)))


@command(
    "stateshift failback hdfs://b/standby/orders\n"
    "stateshift failback hdfs://b/standby/orders --spec orders.json --yes",
    (2, 3, 4, 5, 6, 7, 8, 10, 130),
    e0="the job runs where it was before the failover",
    e3="the standby's state file is damaged, or of another version",
    e4="no job runs there since a failover, or nobody knows how it is started at home, or it may "
    "run there",
    e130="interrupted: `stateshift resume WORKDIR` continues",
)
def failback(
    terminal: Terminal,
    options: RunOptions,
    place: Annotated[
        str,
        argument(
            "LOCATION|WORKDIR",
            "Where the job runs since the failover, or the workdir of the run that kept it.",
        ),
    ],
    spec: Annotated[
        str | None,
        option(
            "--spec",
            "FILE",
            "The spec that kept the standby, where its state file has no start at home.",
        ),
    ] = None,
    waive: Waive = None,
) -> int | None:
    """Move a job home from its standby: its region is back.

    A warm move back: what is at home is set aside there, and what the job needs of it stays; the
    rest is copied while the job runs; then it is stopped, and goes on at home. Writes a spec that
    keeps the standby again, and says so. `stateshift rollback WORKDIR` puts back what was set
    aside.
    """
    from stateshift.api.failovers import spec_of_failback, standby_at, with_waivers
    from stateshift.cli.shell.launch import Request, launch
    from stateshift.cli.views import standby_text
    from stateshift.documents.standby import StandbyFacts

    adapters = terminal.adapters()
    standby = standby_at(place, adapters)
    wanted = with_waivers(spec_of_failback(standby, spec, adapters), waive or ())
    terminal.talk(standby_text.standby(StandbyFacts(standby, adapters.clock.now())))
    wanted = overridden(wanted, options.parallel, options.throttle)
    return launch(terminal, options, Request(wanted, typed=True))


def show_request(
    terminal: Terminal, workdir: Workdir, state: str, words: str, **more: object
) -> None:
    """Show the request, and whether a process is there to heed it."""
    from stateshift.documents.run import steering

    held = workdir.held
    if terminal.json:
        live = workdir.steering.live() if held else None
        terminal.document("steering", steering(state, held, str(workdir.path), live, more))
        return
    terminal.show([Line(words)])
    if not held:
        again = f"stateshift resume {quote(str(workdir.path))}"
        terminal.say(f"no process works on this run now: it takes effect once `{again}` goes on")


def _status_command(workdir: Workdir) -> str:
    """Return the command that shows where the run stands."""
    return f"stateshift status {quote(str(workdir.path))}"


def _refuse_over(terminal: Terminal, workdir: Workdir, what: CommandName) -> Progress:
    """Return the progress of a run; one that is over cannot be steered. It is noted who asks."""
    from stateshift import migration

    workdir.require()
    migration.note_command(what, workdir, terminal.adapters())
    progress = migration.progress_of(workdir)
    if progress.state in OVER:
        raise PlanError(
            f"the run is {progress.state}: there is nothing to {what}",
            hint=_status_command(workdir),
        )
    return progress


def _is_halted(progress: Progress, workdir: Workdir) -> bool:
    """Return whether all jobs of the run have been stopped. One that is followed again has more."""
    from stateshift import migration

    live = workdir.steering.live() if workdir.held else None
    if live is not None and live.left:
        return False
    halted = {plan.job for plan in progress.plans if migration.is_stopping(plan)}
    return halted.issuperset(progress.jobs)
