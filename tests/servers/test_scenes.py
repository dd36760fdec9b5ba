"""A running job of each kind of state goes from one real cluster and storage to another, whoever
starts and stops it, and whatever it reads: what comes out is what an unmoved job would have
written, record for record.
"""

from __future__ import annotations

import getpass
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.support import ROOT
from tests.servers.playing import ground, ready
from tests.servers.playing_examples import Example, OnASpark, OnLivy
from tests.servers.scenes import DEFAULT, SCENES, Scene
from tests.support import s3
from tests.support.servers import NAMES, S3_CREDENTIALS, Servers, Unavailable, downloads, group

AXES = [
    {"windows", "join", "dedup", "pandas"},
    {"files", "kafka"},
    {"hdfs-hdfs", "hdfs-s3", "file-hdfs"},
    {"livy", "standalone", "submit"},
    {"plain", "killed"},
]


def test_every_two_values_of_different_axes_meet_in_some_scene() -> None:
    met = {pair for scene in SCENES for pair in itertools.combinations(scene.axes, 2)}
    assert met == {
        pair for a, b in itertools.combinations(AXES, 2) for pair in itertools.product(a, b)
    }


def test_the_scene_of_the_default_run_is_one_of_them() -> None:
    assert DEFAULT in SCENES


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Each is started when a scene needs it first. Drivers find the package, and the keys of S3, in
    the environment that a cluster's own processes have.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        pytest.MonkeyPatch.context() as here,
        group(tmp_path_factory.mktemp("scenes"), PYTHONPATH=path, **S3_CREDENTIALS) as servers,
    ):
        try:
            here.setenv("STATESHIFT_SPARK_HOME_B", str(downloads.spark("3.5.9")))
            yield servers
        except Unavailable as reason:
            pytest.skip(f"cannot be had: {reason}")
        finally:
            for name in reversed(NAMES):
                servers.down(name)


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.row("IS-3", "IS-6", "IS-13", "IS-14", "IS-15", "IS-18")
@pytest.mark.row("IS-4", "IS-19", on="Spark, HDFS")
@pytest.mark.row("IS-16", on="Spark, HDFS, S3")
@pytest.mark.parametrize(
    "scene",
    [pytest.param(one, marks=[] if one == DEFAULT else pytest.mark.slow) for one in SCENES],
    ids=str,
)
def test_a_job_that_is_moved_writes_what_an_unmoved_one_would(
    scene: Scene, servers: Servers, tmp_path: Path
) -> None:
    with ground(scene, servers, tmp_path) as place:
        report = place.play()
        assert report["report"]["downtime_seconds"] > 0


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.row("IS-6", "IS-15", "IS-19")
def test_the_example_of_livy_moves_a_batch_that_somebody_else_submitted(
    servers: Servers, tmp_path: Path
) -> None:
    scene = Scene("windows", "files", "hdfs-hdfs", "livy", "plain")
    password = tmp_path / "livy-password"
    password.write_text("nobody asks for it\n")
    with ready(scene, servers) as exports:
        here, there = (f"hdfs://{name}/{tmp_path.name}" for name in ("hdfs-a", "hdfs-b"))
        play(
            OnLivy(
                scene,
                servers,
                exports,
                tmp_path,
                "livy.json",
                here,
                there,
                {
                    "http://livy.old.example:8998": exports["STATESHIFT_LIVY"],
                    "https://livy.new.example:8998": exports["STATESHIFT_LIVY"],
                    "/etc/stateshift/livy-password": str(password),
                    '"proxy_user": "orders"': f'"proxy_user": "{getpass.getuser()}"',
                    "hdfs://old": here,
                    "hdfs://new": there,
                },
            )
        )


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.row("IS-6", "IS-19")
def test_the_example_of_a_standalone_master_moves_a_driver_that_somebody_else_submitted(
    servers: Servers, tmp_path: Path
) -> None:
    scene = Scene("dedup", "files", "hdfs-hdfs", "standalone", "plain")
    with ready(scene, servers) as exports:
        here, there = (f"hdfs://{name}/{tmp_path.name}" for name in ("hdfs-a", "hdfs-b"))
        masters = {
            f"http://master.{which}.example:{port}": exports[f"STATESHIFT_SPARK_A_{kind}"]
            for which in ("old", "new")
            for port, kind in ((6066, "REST"), (8080, "UI"))
        }
        sizes = {'"driver_memory": "2g"': '"driver_memory": "512m"', '"4g"': '"512m"'}
        places = {
            **masters,
            **sizes,
            "/opt/": f"{tmp_path}/opt/",
            "hdfs://old": here,
            "hdfs://new": there,
        }
        play(
            OnASpark(
                scene,
                servers,
                exports,
                tmp_path,
                "standalone.json",
                here,
                there,
                places,
                named="orders-production",
            )
        )


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.row("IS-14", "IS-16", "IS-19")
def test_the_example_of_kafka_and_s3_moves_a_job_from_spark_submit_to_a_standalone_master(
    servers: Servers, tmp_path: Path
) -> None:
    scene = Scene("join", "kafka", "hdfs-s3", "standalone", "plain")
    with ready(scene, servers) as exports:
        here, there = f"hdfs://hdfs-a/{tmp_path.name}", f"s3a://{s3.BUCKET}/{tmp_path.name}"
        made = OnASpark(
            scene, servers, exports, tmp_path, "kafka-to-s3.json", here, there, {}, by="submit"
        )
        play(
            replace(
                made,
                places={
                    '"master": "yarn"': '"master": "local[2]"',
                    "/opt/spark/bin/spark-submit": str(
                        downloads.spark("3.5.9") / "bin" / "spark-submit"
                    ),
                    "kafka.example:9092": exports["STATESHIFT_KAFKA"],
                    "http://master.cloud.example:6066": exports["STATESHIFT_SPARK_B_REST"],
                    "http://master.cloud.example:8080": exports["STATESHIFT_SPARK_B_UI"],
                    "/opt/kafka/*:/opt/s3a/*": str(made.settings["spark.driver.extraClassPath"]),
                    "https://s3.cloud.example": exports["AWS_ENDPOINT_URL_S3"],
                    "/opt/jobs": f"{tmp_path}/opt/jobs",
                    "hdfs://hadoop": here,
                    "s3a://cloud": there,
                },
            )
        )


def play(example: Example) -> None:
    try:
        report = example.play()
    finally:
        example.end()
    assert report["report"]["downtime_seconds"] > 0
