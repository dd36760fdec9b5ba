"""A schedule as Graphviz and as Mermaid draw it: components in boxes, targets filled, heads framed
twice.

Names are escaped, so that whatever a plan calls its operators is drawn, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.dataflow.schedulers import Schedule


def dot(schedule: Schedule) -> str:
    """For `dot -Tsvg`."""
    return "\n".join(_dot(schedule)) + "\n"


def mermaid(schedule: Schedule) -> str:
    """For Markdown pages that draw Mermaid."""
    return "\n".join(_mermaid(schedule)) + "\n"


def _dot(schedule: Schedule) -> Iterator[str]:
    number = {name: f"n{i}" for i, name in enumerate(schedule.dataflow.names)}
    yield f"digraph {_quoted(schedule.dataflow.name)} {{"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fillcolor=white];'
    for name, node in number.items():
        yield f"  {node} [label={_quoted(name)}{_dot_look(schedule, name)}];"
    for i, component in enumerate(schedule.components):
        inside = " ".join(number[name] + ";" for name in component.operators)
        yield f'  subgraph cluster_{i} {{ label="component {i + 1}"; style=dashed; {inside} }}'
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        look = " [penwidth=2]" if edge.ends in marked else " [color=gray]"
        yield f"  {number[edge.upstream]} -> {number[edge.downstream]}{look};"
    yield "}"


def _dot_look(schedule: Schedule, name: str) -> str:
    target = ", fillcolor=gold" if name in schedule.targets else ""
    return target + (", peripheries=2" if name in schedule.heads else "")


def _quoted(text: str) -> str:
    """A string of Graphviz: a backslash begins an escape of its own there."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _mermaid(schedule: Schedule) -> Iterator[str]:
    number = {name: f"n{i}" for i, name in enumerate(schedule.dataflow.names)}
    inside = set(schedule.paused)
    yield "flowchart LR"
    for i, component in enumerate(schedule.components):
        yield f'  subgraph c{i}["component {i + 1}"]'
        yield from (
            f"    {_mermaid_node(schedule, name, number[name])}" for name in component.operators
        )
        yield "  end"
    yield from (
        f"  {_mermaid_node(schedule, name, node)}"
        for name, node in number.items()
        if name not in inside
    )
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        yield (
            f"  {number[edge.upstream]} {'==>' if edge.ends in marked else '-->'} "
            f"{number[edge.downstream]}"
        )
    targets = ",".join(number[name] for name in schedule.targets)
    yield "  classDef target fill:gold"
    yield f"  class {targets} target"


def _mermaid_node(schedule: Schedule, name: str, node: str) -> str:
    label = f'"{_entities(name)}"'
    return f"{node}[[{label}]]" if name in schedule.heads else f"{node}({label})"


def _entities(text: str) -> str:
    """Mermaid's way to write a character that would mean something: #number;."""
    return "".join(c if c.isalnum() or c in " -_./" else f"#{ord(c)};" for c in text)
