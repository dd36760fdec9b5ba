"""What a user says of a dataflow, to a Dataflow: all complaints at once, each with a JSON pointer.

    asked(text, targets, opened)   the dataflow of a text, and the proper names of the targets, each
                                   text a name or several with commas between; of a document that is
                                   a part of another, `dataflow_of`
      our own JSON        (`document`) operators, edges, and jobs whose plans `opened` brings by the
                          name of a file
      a Flink job's plan  what GET /jobs/:jobid/plan answers
      a Spark query's     what explain(extended=True) prints
    problems(dataflow)             what is wrong with one that a program has put together

What refers to an operator that could not be read is not complained of as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stateshift.dataflow import flink_plan, spark_plan
from stateshift.dataflow.checks import named, refuse_cycles, refuse_doubles, resolved
from stateshift.dataflow.document import Draft, Opened, read_document
from stateshift.dataflow.operators import Dataflow
from stateshift.dataflow.topics import joined
from stateshift.errors import Complaint, SpecError
from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import read_text
from stateshift.specification.values import Reader

HINT = (
    "stateshift dataflow --help tells what a dataflow holds, stateshift schema "
    "dataflow tells editors"
)
KINDS = (
    "a dataflow is JSON (stateshift dataflow --help), what Flink answers to GET "
    "/jobs/:jobid/plan, or what "
    "Spark's explain(extended=True) prints"
)


def asked(
    text: str, targets: Sequence[str] = (), opened: Opened | None = None
) -> tuple[Dataflow, tuple[str, ...]]:
    """The dataflow that a text tells of, and the targets in it. Raises one SpecError that holds
    every complaint.
    """
    complaints = Complaints()
    draft = _draft(text, complaints, opened)
    dataflow = _whole(complaints, draft)
    names = [name for text in targets for name in named(dataflow, text)]
    found = [
        resolved(complaints, dataflow, Place(name, "--targets"), name, draft.partly)
        for name in names
    ]
    if complaints.found:
        raise SpecError(tuple(complaints.found), hint=HINT)
    return dataflow, tuple(dict.fromkeys(name for name in found if name is not None))


def parse_dataflow(text: str, opened: Opened | None = None) -> Dataflow:
    return asked(text, (), opened)[0]


def dataflow_of(plain: Mapping[str, Any], opened: Opened | None = None) -> Dataflow:
    """What a document says that has been read as a part of another one."""
    complaints = Complaints()
    dataflow = _whole(complaints, read_document(Reader(complaints), Place(plain, ""), opened))
    if complaints.found:
        raise SpecError(tuple(complaints.found), hint=HINT)
    return dataflow


def problems(dataflow: Dataflow) -> tuple[Complaint, ...]:
    """What is wrong with a dataflow that a program has put together; its parts as /operators/0,
    /edges/0.
    """
    complaints = Complaints()
    _whole(complaints, _drafted(dataflow, ""))
    return tuple(complaints.found)


def _draft(text: str, complaints: Complaints, opened: Opened | None) -> Draft:
    if spark_plan.is_plan(text):
        return _drafted(
            spark_plan.parse(text, Place(text, ""), complaints), None, partly=bool(complaints.found)
        )
    root = _tree(text, complaints)
    if flink_plan.is_plan(root.value):
        return _drafted(flink_plan.parse(root, complaints), None, partly=bool(complaints.found))
    if (told := flink_plan.error_in(root.value)) is not None:
        complaints.add(
            root / "errors", f"Flink's answer is an error and no plan: {told}", flink_plan.ANSWER
        )
        return Draft(partly=True)
    return read_document(Reader(complaints), root, opened)


def _tree(text: str, complaints: Complaints) -> Place:
    if not text.strip("\ufeff \t\r\n"):
        raise SpecError((Complaint("", "is empty"),), hint=KINDS)
    try:
        return read_text(text, {}, complaints)
    except SpecError as error:
        if not text.lstrip().startswith(("{", "[")):  # nobody meant JSON
            raise SpecError((Complaint("", "neither JSON nor a plan"),), hint=KINDS) from error
        raise


def _drafted(dataflow: Dataflow, pointer: str | None, partly: bool = False) -> Draft:
    """The parts of a dataflow. `pointer` is where it stands, None for a plan, of which nobody
    wrote the parts.
    """
    one, other = (
        ("", "") if pointer is None else (f"{pointer}/operators/{{}}", f"{pointer}/edges/{{}}")
    )
    return Draft(
        dataflow.name,
        [(Place(part.name, one.format(i)), part) for i, part in enumerate(dataflow.operators)],
        [
            (Place(" -> ".join(part.ends), other.format(i)), part)
            for i, part in enumerate(dataflow.edges)
        ],
        partly,
    )


def _whole(complaints: Complaints, draft: Draft) -> Dataflow:
    """The parts as one dataflow, with the edges of its topics; what does not fit together is
    complained of.
    """
    known = Dataflow(tuple(refuse_doubles(complaints, draft.operators)), (), draft.name)
    edges = []
    for place, edge in draft.edges:
        upstream, downstream = (
            resolved(complaints, known, place, end, draft.partly) for end in edge.ends
        )
        if upstream is not None and downstream is not None:
            edges.append((place, replace(edge, upstream=upstream, downstream=downstream)))
    whole = joined(replace(known, edges=tuple(refuse_doubles(complaints, edges))))
    refuse_cycles(complaints, whole, {edge.ends: place for place, edge in reversed(edges)})
    return whole
