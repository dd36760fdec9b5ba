"""A Spark streaming query's own plan to a dataflow: what `explain(extended=True)` prints of a query
or a DataFrame.

    == Physical Plan ==
    *(4) HashAggregate(keys=[shop#7], functions=[count(1)])
    +- StateStoreSave [shop#7], state info [ checkpoint = …, opId = 0, ver = 3, numPartitions = 8], Update, 0, 2
       +- Exchange hashpartitioning(shop#7, 8), ENSURE_REQUIREMENTS, [plan_id=31]
          +- *(1) Project [shop#7]
             +- MicroBatchScan[key#1, value#2] class
             org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaScan

(Spark, TreeNode.treeString.) Three characters a level; tuples flow upwards. An exchange is no
operator but the way of an edge, and says on how many workers what is above it runs. Nodes of which
at most one tuple comes for each are one-to-one (ONE_TO_ONE), all others one-to-many: never wrong,
only slower. Of several nodes of a name, the first on the way from the sources has the name, the
next ones a number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stateshift.dataflow.operators import Dataflow, Edge, Operator, Way
from stateshift.specification.place import Complaints, Place

PHYSICAL = "== Physical Plan =="
ONE_TO_ONE = frozenset(
    (
        *(
            "Project",
            "Filter",
            "EventTimeWatermark",
            "HashAggregate",
            "ObjectHashAggregate",
            "SortAggregate",
            "Sort",
        ),
        *(
            "StateStoreSave",
            "StateStoreRestore",
            "SessionWindowStateStoreSave",
            "SessionWindowStateStoreRestore",
        ),
        *(
            "StreamingDeduplicate",
            "StreamingDeduplicateWithinWatermark",
            "MergingSessions",
            "UpdatingSessions",
        ),
        *(
            "MicroBatchScan",
            "StreamingRelation",
            "Scan",
            "FileScan",
            "LocalTableScan",
            "Union",
            "Coalesce",
        ),
        *(
            "WriteToDataSourceV2",
            "WriteToContinuousDataSource",
            "SerializeFromObject",
            "DeserializeToObject",
        ),
        *("MapElements", "AppendColumns", "BatchEvalPython", "ArrowEvalPython", "ColumnarToRow"),
        *("StreamingGlobalLimit", "StreamingLocalLimit", "EventTimeWatermarkExec"),
    )
)
_WRAPPERS = ("InputAdapter", "WholeStageCodegen", "AdaptiveSparkPlan")
_LINE = re.compile(
    r"^(?P<indent>[ :]*(?:[+:]- )?)(?:\*\s?(?:\(\d+\) )?)?(?P<node>[A-Za-z_]\w*)(?P<rest>.*)$"
)
_WORKERS = re.compile(r"partitioning\(.*?(\d+)\)")
_TOPICS = re.compile(r"Subscribe\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class _Node:
    depth: int
    name: str
    rest: str

    @property
    def exchange(self) -> bool:
        return self.name in ("Exchange", "BroadcastExchange", "ShuffleExchange")


def is_plan(text: str) -> bool:
    """Whether a text looks like one."""
    return not text.lstrip().startswith("{") and (PHYSICAL in text or "\n+- " in text)


def parse(text: str, place: Place, complaints: Complaints) -> Dataflow:
    """The dataflow of the physical plan in a text."""
    nodes = list(_nodes(text))
    if not nodes:
        complaints.add(place, "no physical plan in it", f"what explain prints behind {PHYSICAL}")
        return Dataflow((), ())
    below = _children(nodes)
    workers = _all_workers(nodes, below)
    operators, number_of = _operators(nodes, workers)
    return Dataflow(tuple(operators), tuple(_edges(nodes, below, number_of)), "query")


def _nodes(text: str) -> Iterator[_Node]:
    """The nodes of the physical plan, as they stand: each below the one that reads from it."""
    lines = text.split(PHYSICAL, 1)[-1].strip("\n").split("\n")
    for line in lines:
        found = _LINE.match(line)
        if found is None or line.startswith("== "):
            return
        yield _Node(len(found["indent"]) // 3, found["node"], found["rest"])


def _children(nodes: list[_Node]) -> list[list[int]]:
    """For each node, those it reads from."""
    below: list[list[int]] = [[] for _ in nodes]
    above: list[int] = []
    for number, node in enumerate(nodes):
        del above[node.depth :]
        if above:
            below[above[-1]].append(number)
        above.append(number)
    return below


def _all_workers(nodes: list[_Node], below: list[list[int]]) -> list[int]:
    """On how many workers each node runs: as many as the exchange below it says, or else what it
    reads from.
    """
    workers = [1] * len(nodes)
    for number in reversed(range(len(nodes))):
        told = _WORKERS.search(nodes[number].rest) if nodes[number].exchange else None
        if told:
            workers[number] = int(told[1])
        elif not nodes[number].exchange and below[number]:
            workers[number] = max(workers[child] for child in below[number])
    return workers


def _operators(nodes: list[_Node], workers: list[int]) -> tuple[list[Operator], dict[int, str]]:
    """The operators, sources first, and the names of the nodes."""
    named: dict[int, str] = {}
    often: Counter[str] = Counter()
    operators = []
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if node.exchange or node.name in _WRAPPERS:
            continue
        often[node.name] += 1
        named[number] = node.name if often[node.name] == 1 else f"{node.name} {often[node.name]}"
        kind, topics = (
            ("one-to-one" if node.name in ONE_TO_ONE else "one-to-many"),
            _TOPICS.search(node.rest),
        )
        made = Operator(
            named[number],
            workers=max(1, workers[number]),
            reads=tuple(topics[1].replace(" ", "").split(",")) if topics else (),
        )
        operators.append(made if kind == "one-to-one" else replace(made, kind="one-to-many"))
    return operators, named


def _edges(nodes: list[_Node], below: list[list[int]], named: dict[int, str]) -> Iterator[Edge]:
    for number, name in named.items():
        for child in below[number]:
            way: Way = "forward"
            while (
                child not in named and below[child]
            ):  # exchanges, and what is no operator of its own
                way = _way(nodes[child], way)
                child = below[child][0]
            if child in named:
                yield Edge(named[child], name, way)


def _way(node: _Node, before: Way) -> Way:
    if not node.exchange:
        return before
    return "broadcast" if node.name == "BroadcastExchange" else "partitioned"
