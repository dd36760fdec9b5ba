"""A stand-in that answers as the ResourceManager and the NodeManager of Hadoop 3.4.3 were seen to
answer: `yarn_answers/` holds what they said (`test_yarn.py` of tests/servers asks the real ones),
and here only ids, names and states are filled in. `fake_spark_submit.py` submits to it. It can be
told to misbehave: a standby, an application that is forgotten, a launcher that dies.
"""

from __future__ import annotations

import getpass
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clusters import faulty_server
from tests.clusters.faulty_server import StandIn

ANSWERS = Path(__file__).with_name("yarn_answers")
ALIVE = {"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"}


def recorded(name: str) -> Any:
    return json.loads((ANSWERS / f"{name}.json").read_text("utf-8"))


@dataclass
class FakeYarn(StandIn):
    """`standby`: it answers as one whose partner is active. `says` is what drivers print."""

    started: Counter[str] = field(default_factory=Counter)  # by our tag
    applications: dict[str, dict[str, Any]] = field(default_factory=dict)
    submitted: list[list[str]] = field(default_factory=list)
    first_state: str = "RUNNING"
    launcher: str = ""  # "dies": spark-submit, once its application is accepted
    standby: bool = False
    users: set[str] = field(default_factory=set)  # those that requests named
    allows: bool = True  # to kill
    node_is_away: bool = False
    allocation_min: str | None = "128"
    pages: dict[str, Any] = field(default_factory=dict)  # instead of those that were recorded
    says: str = "password=hunter22\nit runs\n"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submits(self, method: str, path: str) -> bool:
        return path == "/submit"

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        with self.lock:
            if path.startswith("/ws/"):
                self.users.update(query.get("user.name", [""]))
            if path == "/submit":
                return self._accept(body)
            if path.startswith("/ws/v1/node/containerlogs/"):
                if self.headers[-1]["Accept"] == "application/json":
                    return 503, {"RemoteException": {"exception": "WebApplicationException"}}
                if self.node_is_away:
                    return 404, recorded("not-found")
                if path.endswith(".log"):  # of a JobManager whose JVM did not start
                    return 404, recorded("not-found")
                return 200, self.says if path.endswith(("stderr", ".out")) else ""
            parts = path.removeprefix("/ws/v1/cluster/").split("/")
            if self.standby and parts != ["info"]:
                return 307, f"This is standby RM. The redirect url is: {path}\n"
            match parts:
                case ["apps"]:
                    apps = [app for app in self.applications.values() if _is_asked(app, query)]
                    return 200, {"apps": {"app": apps} if apps else {}}
                case ["apps", id, *state]:
                    return self._application(id, state, body)
                case ["", "conf"]:
                    if self.allocation_min is None:
                        return 403, "<html>unauthorized</html>"
                    known = {"key": query["name"][0], "value": self.allocation_min}
                    return 200, {"property": known}
                case [page]:
                    return 200, self.pages.get(page) or recorded(page)
        raise AssertionError(path)

    def _application(self, id: str, state: list[str], body: Any) -> tuple[int, Any]:
        app = self.applications.get(id)
        if app is None:
            return 404, recorded("not-found")
        if state:
            if not self.allows:
                return 403, {"RemoteException": {"message": "User dr.who cannot perform it"}}
            if app["state"] in ALIVE:
                app.update(recorded("killed")["app"] | _identity(app))
            return 202, {"state": app["state"]}
        return 200, {"app": app}

    def _accept(self, body: dict[str, Any]) -> tuple[int, Any]:
        number = len(self.submitted) + 1
        self.submitted.append(body["words"])
        tag = body["environment"]["STATESHIFT_TAG"]
        self.started[tag] += 1
        id = f"application_1796022664147_{number:04}"
        app = recorded("running")["app"] | {
            "id": id,
            "name": body["name"],
            "user": getpass.getuser(),
            "applicationTags": body["tags"],
            "queue": body["queue"],
            "state": self.first_state,
            "startedTime": 1796022664147 + number,
            "amHostHttpAddress": self.url.partition("://")[2],
        }
        if self.first_state != "RUNNING":
            app |= recorded(self.first_state.lower())["app"] | _identity(app)
        self.applications[id] = app
        launcher, self.launcher = self.launcher, ""
        return 200, {"id": id, "launcher": launcher}

    def set_state(self, tag_words: str, answer: str) -> None:
        """Have the application with this word among its tags be as a recorded one was."""
        with self.lock:
            for app in self.applications.values():
                if tag_words in app["applicationTags"]:
                    identity = _identity(app)
                    app.clear()
                    app.update(recorded(answer)["app"] | identity)

    def forget(self) -> None:
        with self.lock:
            self.applications.clear()

    def dies(self) -> None:
        self.launcher = "dies"


def _identity(app: dict[str, Any]) -> dict[str, Any]:
    own = ("id", "name", "user", "applicationTags", "queue", "startedTime", "amHostHttpAddress")
    return {key: app[key] for key in own}


def _is_asked(app: dict[str, Any], query: dict[str, list[str]]) -> bool:
    tags, states = query.get("applicationTags"), query.get("states")
    if tags is not None and tags[0] not in app["applicationTags"].split(","):
        return False
    return states is None or app["state"] in states[0].split(",")


@contextmanager
def serving(seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[FakeYarn]:
    yarn = FakeYarn(seconds)
    with faulty_server.serving(yarn, tls):
        yield yarn


@contextmanager
def pair() -> Iterator[tuple[FakeYarn, FakeYarn]]:
    """Two of them with one state, of which the second stands by."""
    with ExitStack() as both:
        first, second = both.enter_context(serving()), both.enter_context(serving())
        second.applications, second.standby = first.applications, True
        yield first, second
