"""Examples whose job runs: one that somebody started by hand moves as the example says, with our
hosts in place of the made-up ones. Its program and the package are where the example has them.
"""

from __future__ import annotations

import io
import json
import urllib.request
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import Submission
from stateshift.specification.model import ClusterSpec
from stateshift.storage.opening import open_storage
from tests.acceptance.support import ROOT
from tests.servers.playing import Ground
from tests.servers.scene_specs import APPLICATION
from tests.support.examples import example


@dataclass(frozen=True)
class Example(Ground):
    """`places`: what the example has -> what we have."""

    file: str
    source: str
    target: str
    places: dict[str, str] = field(default_factory=dict)

    @property
    def here(self) -> str:
        return f"{self.source}/checkpoints/orders"

    @property
    def there(self) -> str:
        return f"{self.target}/checkpoints/orders"

    def move(self) -> Path:
        """That this job goes on reading its files where they are has to be said besides."""
        path = example(self.file, self.folder, self.places)
        plain = json.loads(path.read_text())
        if self.scene.source == "files":
            plain["jobs"][0]["waive"] = ["paths-stay"]
        path.write_text(json.dumps(plain))
        return path

    def program(self) -> bytes:
        """The scene's job, which knows by itself what to do."""
        text = APPLICATION.read_text()
        begin = 'if __name__ == "__main__":\n'
        assert begin in text
        words = f"    import sys\n\n    sys.argv[1:] = {self.submit['arguments']!r}\n"
        return text.replace(begin, begin + words).encode()

    def install(self, location: str) -> None:
        """The program and the package, at a location that the cluster can read."""
        storage = open_storage(location)
        zipped = package()
        files = {
            "jobs/orders.py": self.program(),
            "jobs/stateshift.zip": zipped,
            "stateshift.zip": zipped,
        }
        for path, content in files.items():
            storage.write(path, lambda content=content: iter((content,)))  # type: ignore[misc]


class OnLivy(Example):
    def start(self) -> None:
        self.install(self.target)
        conf = {
            **self.settings,
            "spark.stateshift.checkpoint": self.here,
            "spark.stateshift.job": "orders",
        }
        batch = {"file": f"{self.target}/jobs/orders.py", "name": "orders-production", "conf": conf}
        url, headers = (
            f"{self.exports['STATESHIFT_LIVY']}/batches",
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(batch).encode(), headers), timeout=60
        ):
            return


@dataclass(frozen=True)
class OnASpark(Example):
    """`by` is who starts the job, under a name, as another run of stateshift would."""

    by: str = "standalone"
    named: str = "orders"

    def start(self) -> None:
        self.install(f"file://{self.folder}/opt")
        plain = replace(self, scene=replace(self.scene, by=self.by)).cluster
        options = {**plain, "state_dir": str(self.folder / "by-hand")}
        cluster = open_cluster(
            ClusterSpec("by-hand", options.pop("kind"), options), str(self.folder)
        )
        given = {**self.submit, "application": str(self.folder / "opt" / "jobs" / "orders.py")}
        if self.by == "submit":
            given.pop("driver_memory")
            given["py_files"] = [str(self.folder / "opt" / "jobs" / "stateshift.zip")]
        cluster.submit(Submission(f"by-hand.{self.named}", self.named, self.here, options=given))


def package() -> bytes:
    """The package as one file, for `py_files` or a PYTHONPATH."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted((ROOT / "stateshift").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    return content.getvalue()
