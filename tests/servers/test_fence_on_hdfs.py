"""A fence on HDFS: a real driver that sleeps in a batch meanwhile cannot commit it when it wakes
up, and the job goes on once the fence is taken away. Spark's logs are created by a rename there,
which refuses what is there.
"""

from __future__ import annotations

import os
import uuid

import pytest

from stateshift.storage.opening import open_patiently
from tests.servers.drivers import Job
from tests.support.servers import Servers

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "HDFS"


@pytest.mark.slow
@pytest.mark.row("IS-19")
@pytest.mark.parametrize("version", [pytest.param("3.5", marks=pytest.mark.slow), "4.3"])
def test_a_driver_that_wakes_up_behind_a_fence_cannot_commit(
    single: Servers, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    location = f"hdfs://hdfs-a/{uuid.uuid4().hex}"
    environment = {
        "HADOOP_CONF_DIR": single.exports()["HADOOP_CONF_DIR"],
        "HDFSCLI_CONFIG": os.devnull,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    Job(version, location, {}, environment).cannot_commit_behind_a_fence(open_patiently(location))
