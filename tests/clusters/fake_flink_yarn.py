"""A stand-in for YARN with Flink on it: each application has a JobManager of its own (`fake_flink`),
at the address that the ResourceManager tells, and is over when its job is.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clusters import fake_flink, faulty_server
from tests.clusters.fake_flink import ENDED, FakeFlink
from tests.clusters.fake_yarn import FakeYarn, recorded

ENDS = {"FINISHED": "SUCCEEDED", "CANCELED": "KILLED", "FAILED": "FAILED"}


@dataclass
class FakeFlinkYarn(FakeYarn):
    """`fails_with` is why the next job's application fails at once."""

    managers: dict[str, FakeFlink] = field(default_factory=dict)
    fails_with: str = ""
    serving: ExitStack = field(default_factory=ExitStack)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        with self.lock:
            for id, flink in self.managers.items():  # one that was just accepted has none yet
                self._follow(self.applications.get(id, {"state": "forgotten"}), flink)
        status, told = super().answer(method, path, query, body)
        if path == "/submit" and status == 200:
            words, id = body["words"], told["id"]
            conf = dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))
            path = words[words.index("-s") + 1] if "-s" in words else None
            flink = self.begin(id, body["name"])
            job = flink.begin(conf["$internal.pipeline.job-id"], body["name"])
            if path is not None:
                job.restored = {"id": 7, "external_path": path, "is_savepoint": True}
            why, self.fails_with = self.fails_with, ""
            if why:
                over = {"state": "FINISHED", "finalStatus": "FAILED", "diagnostics": why}
                self.applications[id].update(over)
        return status, told

    def begin(self, id: str, name: str, **more: Any) -> FakeFlink:
        """The JobManager of an application, which somebody else may have started."""
        flink = self.serving.enter_context(fake_flink.serving())
        with self.lock:
            nobodys = recorded("running")["app"] | {"id": id, "applicationTags": ""}
            app = self.applications.setdefault(id, nobodys)
            app.update({"user": getpass.getuser(), "name": name, "applicationType": "Apache Flink"})
            app.update({"amRPCAddress": flink.url.partition("://")[2], **more})
            self.managers[id] = flink
        return flink

    def _follow(self, app: dict[str, Any], flink: FakeFlink) -> None:
        jobs = list(flink.jobs.values())
        for job in jobs:
            flink.told(job)  # time goes on, whoever looks
        if app["state"] == "RUNNING" and jobs and all(job.state in ENDED for job in jobs):
            app.update({"state": "FINISHED", "finalStatus": ENDS[jobs[-1].state]})
            app["diagnostics"] = jobs[-1].result


@contextmanager
def serving(seconds: float = 0.0) -> Iterator[FakeFlinkYarn]:
    yarn = FakeFlinkYarn(seconds)
    with yarn.serving, faulty_server.serving(yarn):
        yield yarn
