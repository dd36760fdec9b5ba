"""A schedule as Graphviz and as Mermaid draw it: components in boxes, targets filled, heads framed
twice.

Names are escaped, so that whatever a plan calls its operators is drawn, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
        yield f"  {node} [label={_quoted(name)}{_dot_look(schedule, name)}];"
    yield from _dot_components(schedule, node_of)
    yield from _dot_edges(schedule, node_of)
    yield "}"


def _node_of(schedule: Schedule) -> dict[str, str]:
    """Return a name for each operator that needs no escaping."""
    return {name: f"n{i}" for i, name in enumerate(schedule.dataflow.names)}


def _dot_components(schedule: Schedule, node_of: Mapping[str, str]) -> Iterator[str]:
    for i, component in enumerate(schedule.components):
        inside = " ".join(node_of[name] + ";" for name in component.operators)
        yield f'  subgraph cluster_{i} {{ label="component {i + 1}"; style=dashed; {inside} }}'


def _dot_edges(schedule: Schedule, node_of: Mapping[str, str]) -> Iterator[str]:
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        look = "penwidth=2" if edge.ends in marked else "color=gray"
        yield f"  {node_of[edge.upstream]} -> {node_of[edge.downstream]} [{look}];"


def _dot_look(schedule: Schedule, name: str) -> str:
    look = ""
    if name in schedule.targets:
        look += ", fillcolor=gold"
    if name in schedule.heads:
        look += ", peripheries=2"
    return look


def _quoted(text: str) -> str:
    """Return a string of Graphviz: a backslash begins an escape of its own there."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _mermaid(schedule: Schedule) -> Iterator[str]:
    node_of = _node_of(schedule)
    shape_of = {name: _mermaid_node(schedule, name, node) for name, node in node_of.items()}
    yield "flowchart LR"
    yield from _mermaid_nodes(schedule, shape_of)
    yield from _mermaid_edges(schedule, node_of)
    targets = ",".join(node_of[name] for name in schedule.targets)
    yield "  classDef target fill:gold"
    yield f"  class {targets} target"


def _mermaid_nodes(schedule: Schedule, shape_of: Mapping[str, str]) -> Iterator[str]:
    outside = dict(shape_of)
    for i, component in enumerate(schedule.components):
        yield f'  subgraph c{i}["component {i + 1}"]'
        for name in component.operators:
            yield f"    {outside.pop(name)}"
        yield "  end"
    for shape in outside.values():
        yield f"  {shape}"


def _mermaid_edges(schedule: Schedule, node_of: Mapping[str, str]) -> Iterator[str]:
    marked = schedule.edges
    for edge in schedule.dataflow.edges:
        arrow = "==>" if edge.ends in marked else "-->"
        yield f"  {node_of[edge.upstream]} {arrow} {node_of[edge.downstream]}"


def _mermaid_node(schedule: Schedule, name: str, node: str) -> str:
    label = f'"{_entities(name)}"'
    return f"{node}[[{label}]]" if name in schedule.heads else f"{node}({label})"


def _entities(text: str) -> str:
    """Escape each character that means something to Mermaid: #number;."""
    return "".join(c if c.isalnum() or c in " -_./" else f"#{ord(c)};" for c in text)
