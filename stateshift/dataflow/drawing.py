"""A schedule as Graphviz and as Mermaid draw it: components in boxes, targets filled, heads framed
twice.

Names are escaped: whatever a plan calls its operators is drawn, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.dataflow.schedulers import Schedule


def dot(schedule: Schedule) -> str:
    """Return the text that `dot -Tsvg` draws."""
    return "\n".join(_dot(schedule)) + "\n"


def mermaid(schedule: Schedule) -> str:
    """Return the text that Markdown pages with Mermaid draw."""
    return "\n".join(_mermaid(schedule)) + "\n"


def _dot(schedule: Schedule) -> Iterator[str]:
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


def _mermaid(schedule: Schedule) -> Iterator[str]:
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
