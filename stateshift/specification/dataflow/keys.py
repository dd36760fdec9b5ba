"""Every key a dataflow's JSON may hold, once: the reader, the writer and its JSON Schema are made
from this table. `document` reads the lists of objects.
"""

from __future__ import annotations

from typing import get_args

from stateshift.specification.dataflow.operators import Edge, Operator, Way
from stateshift.specification.dataflow.operators import Kind as OperatorKind
from stateshift.specification.key import Keys, Kind, array, either, reference
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    COUNT,
    NUMBER,
    SOME_TEXT,
    TEXT,
    TEXTS,
    VERSION,
    as_it_stands,
)

_ARROWS = {"type": "string", "pattern": r"\S\s*->\s*\S"}
OPERATOR_LIST = Kind("operators", as_it_stands, array(reference("operator")), shared=True)
EDGE_LIST = Kind("edges", as_it_stands, array(either(_ARROWS, reference("edge"))), shared=True)
JOB_LIST = Kind("planned_jobs", as_it_stands, array(reference("job")), shared=True)
ONE_PER_EDGE = Kind(
    "one_per_edge", as_it_stands, either({"type": "boolean"}, array(SOME_TEXT)), shared=True
)
PLAN = Kind("plan", as_it_stands, either(SOME_TEXT, {"type": "object"}), shared=True)

DATAFLOW = Keys(
    None,
    **{"$schema": TEXT("Where this schema is, for editors.")},
    version=VERSION("The version of this dialect."),
    name=TEXT("What the dataflow is called."),
    operators=OPERATOR_LIST("The operators, each with a name that no other has."),
    edges=EDGE_LIST("Which operator sends to which: objects, or texts such as 'a -> b -> c'."),
    jobs=JOB_LIST(
        "Running jobs whose own plans tell their operators; topics join them to the rest."
    ),
)

OPERATOR = Keys(
    Operator,
    name=TEXT("What it is called; everything else calls it by that."),
    kind=CHOICE(
        "one-to-one: at most one tuple for each it reads, on one of its edges. one-to-many: any "
        "number. blocking: it sends nothing before it has read all.",
        choices=get_args(OperatorKind),
    ),
    one_per_edge=ONE_PER_EDGE(
        "One-to-many, but at most one tuple for each it reads on each of its edges (true), or on "
        "those to these operators."
    ),
    unique=BOOLEAN(
        "At most one tuple for each tuple of a source, however many of its descendants come by."
    ),
    workers=COUNT("On how many workers it runs."),
    job=TEXT("The job it belongs to."),
    cluster=TEXT("The cluster it runs on."),
    cost_seconds=NUMBER("What one tuple takes on one worker; for the expected delay."),
    rate_per_second=NUMBER("Tuples a source reads in a second; for the expected delay."),
    reads=TEXTS("Topics it reads: an edge from every operator that writes them."),
    writes=TEXTS("Topics it writes."),
)

EDGE = Keys(
    Edge,
    **{"from": TEXT("The operator that sends.", field="upstream")},
    to=TEXT("The operator that is sent to.", field="downstream"),
    way=CHOICE(
        "forward: to the worker of the same number. partitioned: to the worker the key belongs to. "
        "broadcast: to all workers.",
        choices=get_args(Way),
    ),
)

JOB = Keys(
    None,
    name=TEXT("What the job is called; its operators are 'name/operator'."),
    cluster=TEXT("The cluster it runs on."),
    plan=PLAN(
        "Its plan: a file beside this one, or what is in it. Flink: the answer of GET "
        "/jobs/:id/plan. Spark: what explain(extended=True) prints."
    ),
    operators=OPERATOR_LIST(
        "What the plan does not tell of its operators: each with its name in the plan."
    ),
)
