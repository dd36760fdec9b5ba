"""Running jobs that move between real clusters and storages, as values.

    check   the kind of state: see scene_job.py
    source  what the job reads: files, kafka
    route   from where its checkpoint goes where: hdfs-hdfs, hdfs-s3, file-hdfs
    by      who starts and stops it: livy, standalone (over REST), submit (spark-submit)
    fate    of the move: plain, or killed in the halt, among the copies and while the job starts,
            and resumed

Every value of each axis meets every value of each other one in some scene. By default one scene
runs, which shows every row that scenes show.

What has to come out is computed here from the data alone, without Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.acceptance.shop import Shop, data

SLOT_SECONDS = 20  # as in scene_job.py


@dataclass(frozen=True)
class Scene:
    check: str
    source: str
    route: str
    by: str
    fate: str

    def __str__(self) -> str:
        return "-".join(
            (self.check, self.source, self.route.replace("-", "-to-"), self.by, self.fate)
        )

    @property
    def axes(self) -> tuple[str, ...]:
        return self.check, self.source, self.route, self.by, self.fate

    @property
    def version(self) -> str:
        """Of Spark: what Livy knows, and what Maven has the Kafka source for."""
        return "3.5" if self.by == "livy" or self.source == "kafka" else "4.3"

    @property
    def standalone(self) -> str:
        """The standalone cluster of that Spark."""
        return "spark-b" if self.version == "3.5" else "spark-a"

    @property
    def servers(self) -> tuple[str, ...]:
        storages = {
            "hdfs-hdfs": ("hdfs-a", "hdfs-b"),
            "hdfs-s3": ("hdfs-a", "s3-real"),
            "file-hdfs": ("hdfs-a",),
        }
        clusters = {"livy": ("livy",), "standalone": (self.standalone,), "submit": ()}
        return (
            *storages[self.route],
            *clusters[self.by],
            *(("kafka",) if self.source == "kafka" else ()),
        )


SCENES = (
    Scene("windows", "files", "hdfs-hdfs", "livy", "plain"),
    Scene("windows", "kafka", "hdfs-s3", "standalone", "killed"),
    Scene("windows", "files", "file-hdfs", "submit", "plain"),
    Scene("join", "kafka", "hdfs-hdfs", "standalone", "plain"),
    Scene("join", "files", "hdfs-s3", "submit", "killed"),
    Scene("join", "kafka", "file-hdfs", "livy", "plain"),
    Scene("dedup", "files", "hdfs-hdfs", "submit", "killed"),
    Scene("dedup", "kafka", "hdfs-s3", "livy", "plain"),
    Scene("dedup", "files", "file-hdfs", "standalone", "plain"),
    Scene("pandas", "kafka", "hdfs-hdfs", "livy", "killed"),
    Scene("pandas", "files", "hdfs-s3", "standalone", "plain"),
    Scene("pandas", "kafka", "file-hdfs", "submit", "killed"),
)
DEFAULT = Scene("dedup", "kafka", "hdfs-s3", "livy", "plain")


def records(check: str, number: int) -> dict[str, list[dict[str, Any]]]:
    """What comes in one step, by name. Where each order is to count once, some of the last two
    steps come again.
    """
    if check == "join":
        return {"payments": list(data.payments(number)), "orders": list(data.orders(number))}
    again = [(number - 1, 3), (number - 2, 7)] if check == "dedup" else []
    repeated = [list(data.orders(step))[::every] for step, every in again if step >= 0]
    return {"orders": [*data.orders(number), *(order for some in repeated for order in some)]}


def expected(check: str, steps: int) -> Counter[str]:
    """Every record that has to come out, with how often: all of them once."""
    if check in ("windows", "join"):
        return Shop(Path()).expected(steps)["counts" if check == "windows" else "joined"]
    orders = [order for number in range(steps) for order in data.orders(number)]
    if check == "dedup":
        return _bag([{key: order[key] for key in ("order", "shop", "amount")} for order in orders])
    sums: dict[tuple[int, str], list[int]] = {}
    for order in orders:
        slot = int(datetime.fromisoformat(order["at"]).timestamp()) // SLOT_SECONDS
        sums.setdefault((slot, order["shop"]), []).append(order["amount"])
    opened = [
        {"slot": s, "shop": shop, "told": "opened", "orders": 0, "amount": 0} for s, shop in sums
    ]
    closed = [
        {
            "slot": slot,
            "shop": shop,
            "told": "closed",
            "orders": len(amounts),
            "amount": sum(amounts),
        }
        for (slot, shop), amounts in sums.items()
    ]
    return _bag([*opened, *closed])


def is_last(record: dict[str, Any]) -> bool:
    """Whether it came of the record that only closes what is open."""
    return record.get("order") == "last" or record.get("shop") == "none"


def _bag(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)
