"""A Spark streaming query's own plan to a dataflow: what `explain(extended=True)` prints of a query
or a DataFrame.

    == Physical Plan ==
    *(4) HashAggregate(keys=[shop#7], functions=[count(1)])
    +- StateStoreSave [shop#7], state info [ opId = 0, ver = 3, numPartitions = 8, …], Update, 0, 2
       +- Exchange hashpartitioning(shop#7, 8), ENSURE_REQUIREMENTS, [plan_id=31]
          +- *(1) Project [shop#7]
             +- MicroBatchScan[key#1, value#2] class
             org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaScan

(Spark, TreeNode.treeString.) Three characters a level; tuples flow upwards. An exchange is no
operator but the way of an edge, and says on how many workers what is above it runs. Nodes of which
at most one tuple comes for each are one-to-one (ONE_TO_ONE), all others one-to-many: never wrong,
only slower. The first of several nodes of a name, on the way from the sources, has the name, the
next ones a number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge, Kind, Way
from stateshift.specification.place import Complaints, Place

PHYSICAL = "== Physical Plan =="
_ONE_TO_ONE_NODES = """
Project Filter EventTimeWatermark HashAggregate ObjectHashAggregate SortAggregate Sort
StateStoreSave StateStoreRestore SessionWindowStateStoreSave SessionWindowStateStoreRestore
StreamingDeduplicate StreamingDeduplicateWithinWatermark MergingSessions UpdatingSessions
MicroBatchScan StreamingRelation Scan FileScan LocalTableScan Union Coalesce
WriteToDataSourceV2 WriteToContinuousDataSource SerializeFromObject DeserializeToObject
MapElements AppendColumns BatchEvalPython ArrowEvalPython ColumnarToRow
StreamingGlobalLimit StreamingLocalLimit EventTimeWatermarkExec
"""
ONE_TO_ONE = frozenset(_ONE_TO_ONE_NODES.split())
_EXCHANGES = ("Exchange", "BroadcastExchange", "ShuffleExchange")
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
    def is_exchange(self) -> bool:
        return self.name in _EXCHANGES

    @property
    def workers(self) -> int | None:
        """The number of workers behind an exchange; None where it does not say."""
        number = _WORKERS.search(self.rest) if self.is_exchange else None
        return int(number[1]) if number else None

    @property
    def way(self) -> Way | None:
        """The way of tuples through an exchange."""
        if not self.is_exchange:
            return None
        return "broadcast" if self.name == "BroadcastExchange" else "partitioned"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of Kafka that it reads."""
        subscription = _TOPICS.search(self.rest)
        if subscription is None:
            return ()
        return tuple(subscription[1].replace(" ", "").split(","))


def is_plan(text: str) -> bool:
    """Whether a text looks like a plan."""
    return not text.lstrip().startswith("{") and (PHYSICAL in text or "\n+- " in text)


def parse(text: str, place: Place, complaints: Complaints) -> Dataflow:
    """Return the dataflow of the physical plan in a text."""
    nodes = []
    for line in text.split(PHYSICAL, 1)[-1].strip("\n").split("\n"):
        match = _LINE.match(line)
        if match is None or line.startswith("== "):
            break
        nodes.append(_Node(len(match["indent"]) // 3, match["node"], match["rest"]))
    if not nodes:
        complaints.add(place, "no physical plan in it", f"what explain prints behind {PHYSICAL}")
        return Dataflow((), ())
    below = _children(nodes)
    # The number of an exchange counts for all that is above it.
    workers = [1] * len(nodes)
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if node.workers is not None:
            workers[number] = node.workers
        elif not node.is_exchange:
            workers[number] = max((workers[child] for child in below[number]), default=1)
    names = _names(nodes)
    operators = []
    for i, name in names.items():
        kind: Kind = "one-to-one" if nodes[i].name in ONE_TO_ONE else "one-to-many"
        topics = nodes[i].topics
        operators.append(DataflowOperator(name, kind, workers=max(1, workers[i]), reads=topics))
    return Dataflow(tuple(operators), tuple(_edges(nodes, below, names)), "query")


def _children(nodes: list[_Node]) -> list[list[int]]:
    """Return for each node those it reads from."""
    below: list[list[int]] = [[] for _ in nodes]
    above: list[int] = []
    for number, node in enumerate(nodes):
        del above[node.depth :]
        if above:
            below[above[-1]].append(number)
        above.append(number)
    return below


def _names(nodes: list[_Node]) -> dict[int, str]:
    """Return the names of the nodes that are operators, sources first."""
    names: dict[int, str] = {}
    times: Counter[str] = Counter()
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if not node.is_exchange and node.name not in _WRAPPERS:
            times[node.name] += 1
            count = times[node.name]
            names[number] = node.name if count == 1 else f"{node.name} {count}"
    return names


def _edges(nodes: list[_Node], below: list[list[int]], names: dict[int, str]) -> Iterator[Edge]:
    """Yield the edges between operators: exchanges and wrappers are none of their own."""
    for number, name in names.items():
        for child in below[number]:
            sender: int = child
            way: Way = "forward"
            while sender not in names and below[sender]:
                way = nodes[sender].way or way
                sender = below[sender][0]
            if sender in names:
                yield Edge(names[sender], name, way)
