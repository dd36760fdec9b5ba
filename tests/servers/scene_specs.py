"""The specs of a scene: where its job's checkpoint is and goes, which clusters run it, and how
it is started there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.scenes import Scene
from tests.support import s3
from tests.support.servers import Servers, downloads, s3_settings, spark

APPLICATION = Path(__file__).with_name("scene_job.py")
SECONDS_MAX = 240.0
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # and quick to start
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Specs:
    """`exports` is the environment of a user who has asked the servers for it."""

    scene: Scene
    servers: Servers
    exports: Mapping[str, str]
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def here(self) -> str:
        local = self.scene.route == "file-hdfs"
        return f"file://{self.folder}/here" if local else f"hdfs://hdfs-a/scenes/{self.name}/here"

    @property
    def there(self) -> str:
        places = {
            "hdfs-hdfs": "hdfs://hdfs-b",
            "hdfs-s3": f"s3a://{s3.BUCKET}",
            "file-hdfs": "hdfs://hdfs-a",
        }
        return f"{places[self.scene.route]}/scenes/{self.name}/there"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def spec(self, name: str, restart: bool = True) -> Path:
        job: dict[str, Any] = {
            "name": self.name,
            "checkpoint_location": self.here,
            "target_cluster": "new" if restart else "old",
            "submit": {**self.submit, "seconds_max": SECONDS_MAX},
        }
        if restart:
            job |= {"remote_location": self.there, "source_cluster": "old", "verify": "entries"}
            job |= {"stop": {"seconds_max": 60}, "waive": ["paths-stay"]}
        clusters = {
            which: {**self.cluster, "state_dir": str(self.folder / which)}
            for which in ("old", "new")
        }
        path = self.folder / f"{name}.json"
        plain: dict[str, Any] = {"version": 1, "engine": "spark", "restart": restart}
        plain |= {"clusters": clusters, "jobs": [job]}
        if self.scene.source == "kafka":  # is asked whether it still has what the job has not read
            plain["kafka"] = {"bootstrap_servers": self.exports["STATESHIFT_KAFKA"]}
        path.write_text(json.dumps(plain, indent=1))
        return path

    @property
    def cluster(self) -> dict[str, Any]:
        if self.scene.by == "livy":
            return {"kind": "livy", "url": self.exports["STATESHIFT_LIVY"], "conf": self.settings}
        if self.scene.by == "standalone":
            prefix = "STATESHIFT_" + self.scene.standalone.upper().replace("-", "_")
            urls = {"url": self.exports[f"{prefix}_REST"], "ui_url": self.exports[f"{prefix}_UI"]}
            sized = {"spark.executor.memory": "512m", "spark.cores.max": 1}
            return {"kind": "spark_standalone", **urls, "conf": {**self.settings, **sized}}
        sized = {"spark.driver.memory": "512m"}
        return {
            "kind": "spark_submit",
            "master": "local[2]",
            "conf": {**self.settings, **sized},
            **self._spark,
        }

    @property
    def _spark(self) -> dict[str, Any]:
        """Another one than that of the Python that runs stateshift."""
        if self.scene.version == "4.3":
            return {}
        home = self._home
        python = spark.python_of(home)
        environment = {
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        }
        return {"spark_submit": str(home / "bin" / "spark-submit"), "environment": environment}

    @property
    def _home(self) -> Path:
        return downloads.spark("3.5.9") if self.scene.version == "3.5" else spark.installed_home()

    @property
    def submit(self) -> dict[str, Any]:
        kafka = f"kafka:{self.exports.get('STATESHIFT_KAFKA')}/{self.name}"
        source = kafka if self.scene.source == "kafka" else f"files:{self.folder}/input"
        words = ["--check", self.scene.check, "--source", source, "--output", str(self.output)]
        sized = {} if self.scene.by == "submit" else {"driver_memory": "512m"}
        return {"application": str(APPLICATION), "arguments": words, **sized}

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "spark.ui.enabled": False,
            "spark.sql.codegen.wholeStage": False,
        }
        settings |= {
            f"spark.{process}.extraJavaOptions": SMALL for process in ("driver", "executor")
        }
        if self.scene.check in ("dedup", "pandas"):
            settings["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
        wanted = [f"kafka-spark-{self.scene.version}"] if self.scene.source == "kafka" else []
        if self.scene.route == "hdfs-s3":
            wanted.append(f"s3a-spark-{self.scene.version}")
            settings |= s3_settings(self.exports, self.scene.version)
        path = spark.class_path(self._home, *map(downloads.jars, wanted))
        return settings | (
            {f"spark.{one}.extraClassPath": path for one in ("driver", "executor")} if path else {}
        )
