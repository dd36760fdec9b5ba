"""A change of a dataflow for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Line, Table, section
from stateshift.cli.views.units import many, number, span
from stateshift.dataflow.consistency import unguarded
from stateshift.dataflow.delays import rounded
from stateshift.dataflow.reasons import order, reasons

if TYPE_CHECKING:
    from stateshift.dataflow.components import Component
    from stateshift.dataflow.delays import Expected
    from stateshift.dataflow.operators import Dataflow
    from stateshift.dataflow.schedulers import Schedule, Scheduler

ROWS_MAX = 20
NAMES_MAX = 12
_PROMISES = {
    "epoch": "consistent; everything waits",
    "multi-version": "consistent; both functions side by side until the last old tuple is through",
    "naive": "consistent here: no tuple meets two targets",
}
_BROKEN = "not consistent: a tuple may meet old and new"


def blocks(
    found: Schedule, delays: Expected, *, explain: bool = False, verbose: bool = False
) -> Iterator[Block]:
    """`verbose` shortens no list."""
    most = None if verbose else ROWS_MAX
    yield Line(_headline(found), "strong")
    yield from _warning(found, delays)
    yield from section("Components: what changes at one cut", *_components(found, most))
    yield from section("Restarts, in this order", *_orders(found, most))
    if explain:
        yield from section("Why", *_table(("operator", ""), reasons(found), most))
    elif found.pruned:
        spared = _names([one.operator for one in found.pruned])
        yield Line(
            f"need not wait, though they make several tuples of one: {spared} (--explain says why)",
            "dim",
            2,
        )
    yield from section("Goes on", Line(_names(found.untouched, most) or "nothing", indent=2))
    yield from section(_load(delays), *_delays(found, delays))


def _headline(found: Schedule) -> str:
    """Everybody once: who waits, who goes on, and the sources that do neither."""
    waiting, going, saying = len(found.paused), len(found.untouched), len(found.tagging_only)
    parts = [
        f"{number(waiting)} of {many(len(found.dataflow.operators), 'operator')} "
        f"{'waits' if waiting == 1 else 'wait'} for a moment"
    ]
    if saying:
        parts.append(f"{number(saying)} {'says' if saying == 1 else 'say'} which function is meant")
    parts.append(f"{number(going)} {'goes' if going == 1 else 'go'} on undisturbed")
    return f"{found.scheduler}: {many(len(found.components), 'component')}; {', '.join(parts)}"


def _warning(found: Schedule, delays: Expected) -> Iterator[Block]:
    if delays.consistent[found.scheduler]:
        return
    harmful = _names(unguarded(found))
    why = (
        f", of what {harmful} makes of one (spared by the published rule alone)" if harmful else ""
    )
    yield Line(f"{_BROKEN}{why}", "warn")
    yield Line(f"hint: {'--rule sound' if harmful else '--scheduler fries'}")


def _promise(name: Scheduler, delays: Expected) -> str:
    if not delays.consistent[name]:
        return _BROKEN
    if name == "fries":
        return (
            "consistent here, by the published rule" if delays.rule == "published" else "consistent"
        )
    return _PROMISES[name]


def _components(found: Schedule, most: int | None) -> Iterator[Block]:
    rows = tuple(
        (
            str(i + 1),
            _names(one.operators, most),
            _names(one.heads, most),
            number(len(one.edges)),
            _jobs(found, one),
        )
        for i, one in enumerate(found.components)
    )
    yield from _table((">", "operators", "heads", ">edges", "jobs (clusters)"), rows, most)


def _orders(found: Schedule, most: int | None) -> Iterator[Block]:
    rows = tuple(
        (str(i + 1) if not place else "", f"{place + 1}.", _names(step, most))
        for i, component in enumerate(found.components)
        for place, step in enumerate(order(component))
    )
    yield from _table((">component", "", "operators"), rows, most)


def _delays(found: Schedule, delays: Expected) -> Iterator[Block]:
    rows = tuple(
        (
            Cell(name, "strong" if name == found.scheduler else ""),
            "-" if seconds is None else delay(seconds),
            Cell(_promise(name, delays), "" if delays.consistent[name] else "warn"),
        )
        for name, seconds in delays.seconds.items()
    )
    yield Table(("scheduler", ">delay", ""), rows)
    if delays.no_figure is not None:
        yield Line(f"there is no figure: {delays.no_figure}", "warn", 2)
    else:
        yield Line(
            f"busiest: {delays.busiest.name}, at work for {delays.busiest.busy:.0%} of the time",
            "dim",
            2,
        )
    for assumed in delays.assumed:
        yield Line(f"assumed: {assumed}", "dim", 2)


def _load(delays: Expected) -> str:
    rates = delays.rates
    where = next(iter(rates)) if len(rates) == 1 else f"{len(rates)} sources"
    what = "simulated" if delays.no_figure is None else "not simulated"
    return f"Expected delay: {what}, at {rounded(sum(rates.values()))} tuples a second from {where}"


def delay(seconds: float) -> str:
    """`3.1 ms` below a tenth of a second, where `span` would say nothing."""
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else span(seconds)


def _jobs(found: Schedule, component: Component) -> str:
    return _names(
        [
            f"{job} ({cluster})" if cluster else job
            for job, cluster in jobs(found.dataflow, component)
        ]
    )


def _table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], most: int | None
) -> Iterator[Block]:
    yield Table(heads, tuple(rows[:most]))
    if most is not None and len(rows) > most:
        yield Line(f"… and {number(len(rows) - most)} more: --verbose", "dim", 2)


def _names(names: Sequence[str], most: int | None = NAMES_MAX) -> str:
    most = most if most is None else min(most, NAMES_MAX)
    shown = ", ".join(names[:most])
    return (
        shown
        if most is None or len(names) <= most
        else f"{shown} … and {number(len(names) - most)} more"
    )


def jobs(dataflow: Dataflow, component: Component) -> list[tuple[str, str | None]]:
    """Return the jobs that halt at one cut, and where they run."""
    operators = (dataflow[name] for name in component.operators)
    return list(dict.fromkeys((one.job, one.cluster) for one in operators if one.job is not None))
