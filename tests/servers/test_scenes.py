"""A running job of each kind of state goes from one real cluster and storage to another, whoever starts and stops it,
and whatever it reads: what comes out is what an unmoved job would have written, record for record."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.support import ROOT
from tests.servers.playing import ground
from tests.servers.scenes import DEFAULT, SCENES, Scene
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
    assert met == {pair for a, b in itertools.combinations(AXES, 2) for pair in itertools.product(a, b)}


def test_every_value_of_every_axis_is_in_a_scene_of_the_default_run() -> None:
    assert [{scene.axes[axis] for scene in DEFAULT} for axis in range(len(AXES))] == AXES


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Each is started when a scene needs it first. Drivers find the package, and the keys of S3, in the environment
    that a cluster's own processes have."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as here, group(
        tmp_path_factory.mktemp("scenes"), PYTHONPATH=path, **S3_CREDENTIALS
    ) as servers:
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
@pytest.mark.row("IS-3", "IS-4", "IS-6", "IS-14", "IS-15", "IS-16", "IS-18", "IS-19")
@pytest.mark.parametrize(
    "scene", [pytest.param(one, marks=[] if one in DEFAULT else pytest.mark.slow) for one in SCENES], ids=str
)
def test_a_job_that_is_moved_writes_what_an_unmoved_one_would(scene: Scene, servers: Servers, tmp_path: Path) -> None:
    with ground(scene, servers, tmp_path) as place:
        report = place.play()
        assert report["report"]["downtime_seconds"] > 0
