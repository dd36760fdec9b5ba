"""Every key a dataflow's JSON may hold, once: what reads it and its JSON Schema are made from
this table.
"""

from __future__ import annotations

from typing import get_args

from stateshift.specification.dataflow.operators import Edge, Kind, Operator, Way
from stateshift.specification.keys.key import Key, Keys

DATAFLOW = Keys(
    Key("$schema", "text", "Where this schema is, for editors."),
    Key("version", "version", "The version of this dialect."),
    Key("name", "text", "What the dataflow is called."),
    Key("operators", "operators", "The operators, each with a name that no other has."),
    Key(
        "edges", "edges", "Which operator sends to which: objects, or texts such as 'a -> b -> c'."
    ),
    Key(
        "jobs",
        "planned_jobs",
        "Running jobs whose own plans tell their operators; topics join them to the rest.",
    ),
)

OPERATOR = Keys(
    Key("name", "text", "What it is called; everything else calls it by that.", Operator, "name"),
    Key(
        "kind",
        "choice",
        "one-to-one: at most one tuple for each it reads, on one of its edges. "
        "one-to-many: any number. "
        "blocking: it sends nothing before it has read all.",
        Operator,
        "kind",
        choices=get_args(Kind),
    ),
    Key(
        "one_per_edge",
        "one_per_edge",
        "One-to-many, but at most one tuple for each it reads on each of its edges (true), "
        "or on those to these operators.",
    ),
    Key(
        "unique",
        "boolean",
        "At most one tuple for each tuple of a source, however many of its descendants come by.",
        Operator,
        "unique",
    ),
    Key("workers", "count", "On how many workers it runs.", Operator, "workers"),
    Key("job", "text", "The job it belongs to.", Operator, "job"),
    Key("cluster", "text", "The cluster it runs on.", Operator, "cluster"),
    Key(
        "cost_seconds",
        "number",
        "What one tuple takes on one worker; for the expected delay.",
        Operator,
        "cost_seconds",
    ),
    Key(
        "rate_per_second",
        "number",
        "Tuples a source reads in a second; for the expected delay.",
        Operator,
        "rate_per_second",
    ),
    Key(
        "reads",
        "texts",
        "Topics it reads: an edge from every operator that writes them.",
        Operator,
        "reads",
    ),
    Key("writes", "texts", "Topics it writes.", Operator, "writes"),
)

EDGE = Keys(
    Key("from", "text", "The operator that sends.", Edge, "upstream"),
    Key("to", "text", "The operator that is sent to.", Edge, "downstream"),
    Key(
        "way",
        "choice",
        "forward: to the worker of the same number. partitioned: to the worker the key "
        "belongs to. broadcast: to all workers.",
        Edge,
        "way",
        choices=get_args(Way),
    ),
)

JOB = Keys(
    Key("name", "text", "What the job is called; its operators are 'name/operator'."),
    Key("cluster", "text", "The cluster it runs on."),
    Key(
        "plan",
        "plan",
        "Its plan: a file beside this one, or what is in it. "
        "Flink: the answer of GET /jobs/:id/plan. Spark: what explain(extended=True) prints.",
    ),
    Key(
        "operators",
        "operators",
        "What the plan does not tell of its operators: each with its name in the plan.",
    ),
)
