"""A change of a dataflow for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Line, Row, TextTable, section
from stateshift.cli.views.units import many, number, span
from stateshift.dataflow.delays import round_rate
from stateshift.dataflow.schedulers import Schedule

if TYPE_CHECKING:
    from stateshift.dataflow.delays import Forecast
    from stateshift.dataflow.schedulers import Scheduler
    from stateshift.documents.dataflow import ChangeFacts

ROWS_MAX = 20
NAMES_MAX = 12
_PROMISES = {
    "epoch": "consistent; everything waits",
    "multi-version": "consistent; both functions side by side until the last old tuple is through",
    "naive": "consistent here: no tuple meets two targets",
}
_BROKEN = "not consistent: a tuple may meet old and new"


def blocks(facts: ChangeFacts, verbose: bool = False) -> Iterator[Block]:
    """Show what changes together, what goes on, and each delay; with `verbose`, in full."""
    rows_max = None if verbose else ROWS_MAX
    schedule, delays = facts.schedule, facts.delays
    yield Line(_headline(schedule), "strong")
    yield from _warning(facts)
    components: list[Row] = []
    orders: list[Row] = []
    for number_, each in enumerate(facts.components, start=1):
        operators = _names(each.component.operators, rows_max)
        heads, edges = _names(each.component.heads, rows_max), number(len(each.component.edges))
        named = [f"{job.name} ({job.cluster})" if job.cluster else job.name for job in each.jobs]
        components.append((str(number_), operators, heads, edges, _names(named)))
        for place, step in enumerate(each.order, start=1):
            orders.append((str(number_) if place == 1 else "", f"{place}.", _names(step, rows_max)))
    titles = (">", "operators", "heads", ">edges", "jobs (clusters)")
    table = _table(titles, components, rows_max)
    yield from section("Components: what changes at one cut", *table)
    table = _table((">component", "", "operators"), orders, rows_max)
    yield from section("Restarts, in this order", *table)
    if facts.reasons is not None:
        yield from section("Why", *_table(("operator", ""), facts.reasons, rows_max))
    elif schedule.pruned:
        spared = _names([pruned.operator for pruned in schedule.pruned])
        words = f"need not wait, though they make several tuples of one: {spared}"
        yield Line(f"{words} (--explain says why)", "dim", 2)
    untouched = _names(schedule.untouched, rows_max) or "nothing"
    yield from section("Goes on", Line(untouched, indent=2))
    rates, is_simulated = delays.rates, delays.no_figure is None
    where = next(iter(rates)) if len(rates) == 1 else f"{len(rates)} sources"
    load = f"at {round_rate(sum(rates.values()))} tuples a second from {where}"
    how = "simulated" if is_simulated else "not simulated"
    yield from section(f"Expected delay: {how}, {load}", *_delays(facts))


def _headline(schedule: Schedule) -> str:
    """Return everybody once: who waits, who goes on, and the sources that do neither."""
    waiting, going = len(schedule.paused), len(schedule.untouched)
    saying = len(schedule.tagging_only)
    operators = many(len(schedule.dataflow.operators), "operator")
    parts = [f"{number(waiting)} of {operators} {_verb(waiting, 'wait')} for a moment"]
    if saying:
        parts.append(f"{number(saying)} {_verb(saying, 'say')} which function is meant")
    parts.append(f"{number(going)} {_verb(going, 'go')} on undisturbed")
    components = many(len(schedule.components), "component")
    return f"{schedule.scheduler}: {components}; {', '.join(parts)}"


def _verb(count: int, plural: str) -> str:
    """Return `waits` or `wait`, as the number wants it."""
    if count != 1:
        return plural
    return f"{plural}es" if plural.endswith("o") else f"{plural}s"


def _warning(facts: ChangeFacts) -> Iterator[Block]:
    if facts.consistent:
        return
    if not facts.harmful:
        yield Line(_BROKEN, "warn")
        yield Line("hint: --scheduler fries")
        return
    harmful = _names(facts.harmful)
    yield Line(
        f"{_BROKEN}, of what {harmful} makes of one (spared by the published rule alone)", "warn"
    )
    yield Line("hint: --rule sound")


def _delays(facts: ChangeFacts) -> Iterator[Block]:
    delays = facts.delays
    rows: list[Row] = []
    for name, seconds in delays.seconds.items():
        scheduler = Cell(name, "strong" if name == facts.schedule.scheduler else "")
        taken = "-" if seconds is None else delay(seconds)
        rows.append((scheduler, taken, _promise(name, delays)))
    yield TextTable(("scheduler", ">delay", ""), tuple(rows))
    if delays.no_figure is not None:
        yield Line(f"there is no figure: {delays.no_figure}", "warn", 2)
    else:
        busiest = delays.busiest
        share = f"at work for {busiest.busy:.0%} of the time"
        yield Line(f"busiest: {busiest.name}, {share}", "dim", 2)
    for assumed in delays.assumed:
        yield Line(f"assumed: {assumed}", "dim", 2)


def _promise(name: Scheduler, delays: Forecast) -> Cell:
    if not delays.consistent[name]:
        return Cell(_BROKEN, "warn")
    if name != "fries":
        return Cell(_PROMISES[name])
    if delays.rule == "published":
        return Cell("consistent here, by the published rule")
    return Cell("consistent")


def delay(seconds: float) -> str:
    """Return `3.1 ms` below a tenth of a second, where `span` would say nothing."""
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else span(seconds)


def _table(heads: tuple[str, ...], rows: Sequence[Row], rows_max: int | None) -> Iterator[Block]:
    yield TextTable(heads, tuple(rows[:rows_max]))
    if rows_max is not None and len(rows) > rows_max:
        yield Line(f"… and {number(len(rows) - rows_max)} more: --verbose", "dim", 2)


def _names(names: Sequence[str], names_max: int | None = NAMES_MAX) -> str:
    if names_max is None:
        return ", ".join(names)
    names_max = min(names_max, NAMES_MAX)
    shown = ", ".join(names[:names_max])
    more = len(names) - names_max
    return f"{shown} … and {number(more)} more" if more > 0 else shown


def dot(schedule: Schedule) -> Iterator[str]:
    """Yield the lines that `dot -Tsvg` draws."""
    node_of = _node_of(schedule)
    yield f"digraph {_quoted(schedule.dataflow.name)} {{"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fillcolor=white];'
    for name, node in node_of.items():
        fill = ", fillcolor=gold" if name in schedule.targets else ""
        frame = ", peripheries=2" if name in schedule.heads else ""
        yield f"  {node} [label={_quoted(name)}{fill}{frame}];"
    for i, component in enumerate(schedule.components):
        inside = " ".join(node_of[name] + ";" for name in component.operators)
        yield f'  subgraph cluster_{i} {{ label="component {i + 1}"; style=dashed; {inside} }}'
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        look = "penwidth=2" if edge.ends in marked else "color=gray"
        yield f"  {node_of[edge.upstream]} -> {node_of[edge.downstream]} [{look}];"
    yield "}"


def _node_of(schedule: Schedule) -> dict[str, str]:
    """Return a name for each operator that needs no escaping."""
    return {name: f"n{i}" for i, name in enumerate(schedule.dataflow.names)}


def _quoted(text: str) -> str:
    """Return a string of Graphviz: a backslash begins an escape of its own there."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def mermaid(schedule: Schedule) -> Iterator[str]:
    """Yield the lines that Markdown pages with Mermaid draw."""
    node_of = _node_of(schedule)
    outside = {}
    for name, node in node_of.items():
        # Each character that means something to Mermaid becomes #number;.
        letters = [c if c.isalnum() or c in " -_./" else f"#{ord(c)};" for c in name]
        label = f'"{"".join(letters)}"'
        outside[name] = f"{node}[[{label}]]" if name in schedule.heads else f"{node}({label})"
    yield "flowchart LR"
    for i, component in enumerate(schedule.components):
        yield f'  subgraph c{i}["component {i + 1}"]'
        for name in component.operators:
            yield f"    {outside.pop(name)}"
        yield "  end"
    for shape in outside.values():
        yield f"  {shape}"
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        arrow = "==>" if edge.ends in marked else "-->"
        yield f"  {node_of[edge.upstream]} {arrow} {node_of[edge.downstream]}"
    targets = ",".join(node_of[name] for name in schedule.targets)
    yield "  classDef target fill:gold"
    yield f"  class {targets} target"
