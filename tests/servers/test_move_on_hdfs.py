"""A checkpoint goes from one real HDFS to another by the command line; a fail-over in the middle
costs nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift.storage.hdfs.storage import open_hdfs
from tests.support.moving import CASES, put, said, spec, there_and_back
from tests.support.servers import Servers, group, hadoop

pytestmark = pytest.mark.servers
SHOWN_ON = "HDFS"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("hdfs"), "hdfs-a", "hdfs-b") as servers:
        yield servers


@pytest.fixture(params=["web", "native"])
def environment(request: pytest.FixtureRequest, servers: Servers) -> dict[str, str]:
    conf = servers.exports()["HADOOP_CONF_DIR"]
    return {
        "HADOOP_CONF_DIR": conf,
        "STATESHIFT_HDFS": str(request.param),
        "HDFSCLI_CONFIG": os.devnull,
    }


@pytest.mark.slow
@pytest.mark.row("IS-16")
@pytest.mark.parametrize(
    "environment", ["native", pytest.param("web", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("case", [CASES[0], pytest.param(CASES[1], marks=pytest.mark.slow)])
def test_a_checkpoint_moves_from_one_hdfs_to_the_other_and_back(
    environment: dict[str, str], tmp_path: Path, case: str
) -> None:
    way = environment["STATESHIFT_HDFS"]
    source, target = f"hdfs://hdfs-a/ck/{case} {way}", f"hdfs://hdfs-b/ck/{case} {way}"
    there_and_back(
        environment,
        tmp_path,
        case,
        source,
        target,
        lambda location: open_hdfs(location, environment),
    )


@pytest.mark.slow
def test_a_fail_over_while_files_are_copied_is_gone_through(
    environment: dict[str, str], servers: Servers, tmp_path: Path
) -> None:
    way = environment["STATESHIFT_HDFS"]
    source, target = f"hdfs://hdfs-a/over-{way}", f"hdfs://hdfs-b/over-{way}"
    put(open_hdfs(source, environment), "window-hdfs")
    over = threading.Thread(target=hadoop.fail_over, args=(servers.root / "hadoop-conf", "hdfs-b"))
    # Slow enough for the fail-over, which takes a few seconds, to fall among the copies.
    job = spec(tmp_path, source, target, throttle={"operations_per_second": 8})
    over.start()
    done = said(environment, "apply", job, "--yes", "--workdir", str(tmp_path / "run"))
    over.join()
    assert done["state"] == "finished"
    assert said(environment, "diff", source, target)["equal"]
