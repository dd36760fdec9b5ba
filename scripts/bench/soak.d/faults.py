"""What happens to a standby's source, and to its target."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from region import Region, freeze, thaw
from servers import hadoop

from tests.support import between
from tests.support.between import Asked

ABOVE = "/soak"  # the folder on HDFS that gets a quota


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and is right again. `hides_target` if nobody can look there."""

    name: str
    side: str
    begin: Callable[[Region], None]
    end: Callable[[Region], None]
    hides_target: bool = False


def spoiled(name: str, fault: str, share: float = 1.0, method: str = "") -> Fault:
    """Return a fault of the source's answers: a share of them, of requests by a method."""

    def begin(region: Region) -> None:
        def spoil(asked: Asked) -> str | None:
            is_meant = not method or asked[0] == method
            return fault if is_meant and region.dice.random() < share else None

        region.spoil = spoil

    return Fault(name, "source", begin, answer_again)


def answer_again(region: Region) -> None:
    region.spoil = lambda asked: None


def slow(region: Region) -> None:
    def spoil(asked: Asked) -> str | None:
        time.sleep(region.dice.uniform(0.3, 2.0))
        return None

    region.spoil = spoil


def fill_up(region: Region) -> None:
    set_quota(region, "-setSpaceQuota", "1m")


def make_room(region: Region) -> None:
    set_quota(region, "-clrSpaceQuota")


def set_quota(region: Region, *words: str) -> None:
    conf = region.servers.root / "hadoop-conf"
    hadoop.run(conf, "dfsadmin", "-fs", "hdfs://hdfs-a", *words, ABOVE)


def kill_target(region: Region) -> None:
    for role in region.servers.state("hdfs-a").pids:
        region.servers.kill("hdfs-a", role)


OF_SOURCE = (
    spoiled("no answer", between.SILENT),
    Fault(
        "frozen",
        "source",
        lambda region: freeze(region.servers, "s3-real"),
        lambda region: thaw(region.servers, "s3-real"),
    ),
    spoiled("half of the answers are 500", between.BROKEN, 0.5),
    spoiled("every answer is 503", between.SLOW_DOWN),
    Fault("slow: 0.3 to 2 s an answer", "source", slow, answer_again),
    spoiled("half of the bodies are cut", between.CUT, 0.5, "GET"),
    spoiled("no bucket", between.NO_BUCKET),
    spoiled("no access", between.DENIED),
)
OF_TARGET = (
    Fault("full", "target", fill_up, make_room),
    Fault(
        "frozen",
        "target",
        lambda region: freeze(region.servers, "hdfs-a"),
        lambda region: thaw(region.servers, "hdfs-a"),
        hides_target=True,
    ),
    Fault(
        "killed",
        "target",
        kill_target,
        lambda region: region.servers.up("hdfs-a") and None,
        hides_target=True,
    ),
)
