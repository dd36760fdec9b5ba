"""The texts of users to dataflows: all complaints at once, each with a JSON pointer.

    parse_request(text, targets, opened)
                          the dataflow of a text, and the proper names of the targets, each text a
                          name or several with commas between
      our own JSON        (`document`) operators, edges, and jobs whose plans `opened` reads by the
                          name of a file
      a Flink job's plan  the answer of GET /jobs/:jobid/plan
      a Spark query's     the output of explain(extended=True)
    read_dataflow(written, opened)  the dataflow of a spec
    problems(dataflow)              the problems of one that a program has put together

A reference to an operator that could not be read is not complained of as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from stateshift.errors import Complaint, SpecError
from stateshift.specification.dataflow import flink_plan, spark_plan
from stateshift.specification.dataflow.document import Draft, Opened, read_document, settle
from stateshift.specification.dataflow.keys import (
    refuse_cycles,
    refuse_doubles,
    resolve_name,
    split_names,
)
from stateshift.specification.dataflow.operators import Dataflow, join_topics
from stateshift.specification.key import Reader
from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import read_text

HINT = (
    "stateshift dataflow --help tells what a dataflow holds, "
    "stateshift schema dataflow tells editors"
)
KINDS = (
    "a dataflow is JSON (stateshift dataflow --help), what Flink answers to GET /jobs/:jobid/plan, "
    "or what Spark's explain(extended=True) prints"
)


def parse_request(
    text: str, targets: Sequence[str] = (), opened: Opened | None = None
) -> tuple[Dataflow, tuple[str, ...]]:
    """Return the dataflow of a text, and its targets; raise one SpecError of all complaints."""
    complaints = Complaints()
    draft = _draft(text, complaints, opened)
    dataflow = _whole(complaints, draft)
    proper_names: list[str | None] = []
    for target in targets:
        for name in split_names(dataflow, target):
            at = Place(name, "--targets")
            proper_names.append(resolve_name(complaints, dataflow, at, name, draft.partly))
    _raise_any(complaints)
    return dataflow, tuple(dict.fromkeys(name for name in proper_names if name is not None))


def _raise_any(complaints: Complaints) -> None:
    if complaints.made:
        raise SpecError(tuple(complaints.made), hint=HINT)


def parse_dataflow(text: str, opened: Opened | None = None) -> Dataflow:
    """Return the dataflow of a text. Raise one SpecError that holds every complaint."""
    return parse_request(text, (), opened)[0]


def dataflow_of(plain: Mapping[str, object], opened: Opened | None = None) -> Dataflow:
    """Return the dataflow of a document that has been read as a part of another one."""
    complaints = Complaints()
    dataflow = _whole(complaints, read_document(Reader(complaints), Place(plain, ""), opened))
    _raise_any(complaints)
    return dataflow


def read_dataflow(written: Mapping[str, object] | str, opened: Opened | None) -> Dataflow:
    """Return the dataflow that a spec writes or names, as it is read again from a saved spec.
    `opened` returns the text of a file by the name that the spec has for it; None where the spec
    lies beside no file. Files that the dataflow names lie beside it: plans of jobs.

        "dataflow": {"operators": [...], "edges": [...]}    complaints at /dataflow/edges/0
        "dataflow": "flows/payments.json"                   at flows/payments.json: /edges/0
    """
    if not isinstance(written, str):
        with _complaints_below("/dataflow"):
            return settle(dataflow_of(written, opened))
    fact = "there is no place beside which it could be"
    folder = os.path.dirname(written)
    try:
        if opened is not None:
            open_file = opened
            with _complaints_below(f"{written}: "):
                text = opened(written)
                beside = parse_dataflow(text, lambda name: open_file(os.path.join(folder, name)))
                return settle(beside)
    except (OSError, UnicodeDecodeError) as error:
        fact = getattr(error, "strerror", None) or str(error)
    fact = f"{written!r} cannot be read: {fact}"
    raise SpecError.of("/dataflow", fact, written, "a file beside the spec")


@contextmanager
def _complaints_below(place: str) -> Iterator[None]:
    """Name the place of the document in each complaint of it."""
    try:
        yield
    except SpecError as error:
        below = tuple(replace(each, pointer=f"{place}{each.pointer}") for each in error.complaints)
        raise SpecError(below, hint=error.hint) from error


def problems(dataflow: Dataflow) -> tuple[Complaint, ...]:
    """Return the problems of a dataflow that a program made, at /operators/0, /edges/0."""
    complaints = Complaints()
    _whole(complaints, _draft_of(dataflow, "/operators/{}", "/edges/{}"))
    return tuple(complaints.made)


def _draft_of(dataflow: Dataflow, operator_at: str = "", edge_at: str = "") -> Draft:
    """Return the parts of a dataflow. Those of a plan have no pointers, since nobody wrote them."""
    operators = [
        (Place(part.name, operator_at.format(i)), part) for i, part in enumerate(dataflow.operators)
    ]
    edges = [
        (Place(" -> ".join(part.ends), edge_at.format(i)), part)
        for i, part in enumerate(dataflow.edges)
    ]
    return Draft(dataflow.name, operators, edges)


def _draft(text: str, complaints: Complaints, opened: Opened | None) -> Draft:
    if spark_plan.is_plan(text):
        draft = _draft_of(spark_plan.parse(text, Place(text, ""), complaints))
        draft.partly = bool(complaints.made)
        return draft
    if not text.strip("\ufeff \t\r\n"):
        raise SpecError.of("", "is empty", hint=KINDS)
    try:
        root = read_text(text, {}, complaints)
    except SpecError as error:
        if text.lstrip().startswith(("{", "[")):
            raise
        # Nobody meant JSON.
        raise SpecError.of("", "neither JSON nor a plan", hint=KINDS) from error
    if flink_plan.is_plan(root.value):
        draft = _draft_of(flink_plan.parse(root, complaints))
        draft.partly = bool(complaints.made)
        return draft
    answer = flink_plan.error_in(root.value)
    if answer is not None:
        message = f"Flink's answer is an error and no plan: {answer}"
        complaints.add(root / "errors", message, flink_plan.ANSWER)
        return Draft(partly=True)
    return read_document(Reader(complaints), root, opened)


def _whole(complaints: Complaints, draft: Draft) -> Dataflow:
    """Return the parts as one dataflow, with its topics' edges. Complain of what does not fit."""
    known = Dataflow(tuple(refuse_doubles(complaints, draft.operators)), (), draft.name)
    edges = []
    for place, edge in draft.edges:
        upstream = resolve_name(complaints, known, place, edge.upstream, draft.partly)
        downstream = resolve_name(complaints, known, place, edge.downstream, draft.partly)
        if upstream is not None and downstream is not None:
            edges.append((place, replace(edge, upstream=upstream, downstream=downstream)))
    whole = join_topics(replace(known, edges=tuple(refuse_doubles(complaints, edges))))
    refuse_cycles(complaints, whole, {edge.ends: place for place, edge in reversed(edges)})
    return whole
