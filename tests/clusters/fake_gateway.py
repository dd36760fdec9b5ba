"""The SQL gateway of a stand-in for Flink: it answers as that of 2.3.0 was seen to answer, and
starts jobs there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.clusters.fake_flink import FakeFlink

_PACKAGE = "org.apache.flink.table.gateway"
UNKNOWN = f"{_PACKAGE}.api.utils.SqlGatewayException: Session 'x' does not exist."


@dataclass
class FakeGateway:
    """`fails` are the stacks of the next statements that fail, by the line they are to begin with;
    `slow` is how often a statement is asked about before it is done; `elsewhere` has the jobs that
    it was made to start on another cluster, where it is not None.
    """

    flink: FakeFlink
    sessions: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(
        default_factory=list
    )  # statements, with what is theirs alone
    properties: list[dict[str, str]] = field(default_factory=list)
    fails: deque[tuple[str, tuple[str, ...]]] = field(default_factory=deque)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    slow: int = 1
    ends_as: str = "FINISHED"
    forgets: int = 0  # after so many more statements it is started anew
    elsewhere: list[str] | None = None
    numbers: Any = field(default_factory=lambda: count(1))

    def answer(self, method: str, parts: list[str], body: Any) -> tuple[int, Any]:
        match (method, parts):
            case ("POST", ["sessions"]):
                handle = f"session-{next(self.numbers)}"
                self.sessions[handle] = body["properties"]
                self.properties.append(body["properties"])
                return 200, {"sessionHandle": handle}
            case (_, ["sessions", handle, *_]) if handle not in self.sessions:
                return 500, _failed(
                    f"{_PACKAGE}.api.utils.SqlGatewayException: Failed to fetchResults.", UNKNOWN
                )
            case ("DELETE", ["sessions", handle]):
                del self.sessions[handle]
                return 200, {"status": "CLOSED"}
            case ("POST", ["sessions", handle, "statements"]):
                return 200, {"operationHandle": self._taken(handle, body)}
            case ("GET", ["sessions", _, "operations", id, "status"]):
                return 200, {"status": self._status(self.operations[id])}
            case ("GET", ["sessions", _, "operations", id, "result", "0"]):
                causes = self.operations[id]["causes"]
                if causes:
                    return 500, _failed(
                        f"{_PACKAGE}.service.utils.SqlExecutionException: Failed to execute.",
                        *causes,
                    )
                return 200, {"resultType": "PAYLOAD", "results": {"data": [{"fields": ["OK"]}]}}
        return 404, {"errors": [f"Not found: {'/'.join(parts)}"]}

    def _taken(self, handle: str, body: dict[str, Any]) -> str:
        statement, own = body["statement"], body.get("executionConfig", {})
        self.asked.append((statement, own))
        causes: tuple[str, ...] = ()
        if self.fails and statement.startswith(self.fails[0][0]):
            causes = self.fails.popleft()[1]
        elif statement.startswith(("INSERT", "EXECUTE")):
            causes = self._start({**self.sessions[handle], **own})
        elif statement.startswith("STOP JOB") and self.elsewhere is not None:
            self.elsewhere.remove(statement.partition("'")[2].rstrip("'"))
        id = f"operation-{next(self.numbers)}"
        self.operations[id] = {"polls": self.slow, "causes": causes}
        if self.forgets:
            self.forgets -= 1
            if not self.forgets:
                self.sessions.clear()
        return id

    def _status(self, operation: dict[str, Any]) -> str:
        operation["polls"] -= 1
        if operation["polls"] >= 0:
            return "RUNNING"
        return "ERROR" if operation["causes"] else self.ends_as

    def _start(self, told: dict[str, str]) -> tuple[str, ...]:
        id = told["$internal.pipeline.job-id"]
        if self.elsewhere is not None:
            self.elsewhere.append(id)
            return ()
        path = told.get("execution.state-recovery.path") or told.get("execution.savepoint.path")
        return self.flink.started_by_sql(
            id, told["pipeline.name"], path, int(told.get("parallelism.default", 2))
        )


def _failed(*causes: str) -> dict[str, Any]:
    from tests.clusters.fake_flink import server_error

    return server_error(*causes)
