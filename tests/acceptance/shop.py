"""The demo's job as a check: orders and payments go in, counts per minute and joined orders come
out. What must come out is computed here from the data alone, without Spark.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.acceptance.support import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "demo.d"))

import data

APPLICATION = ROOT / "scripts" / "demo.d" / "job.py"
OPERATORS = ("Windowed counts (demo)", "Orders joined with payments")


@dataclass(frozen=True)
class Shop:
    """Orders and payments go in; counts per minute and joined orders come out."""

    folder: Path
    out: str = "output"

    def feed(self, first: int, last: int) -> None:
        for number in range(first, last):
            data.write(self.folder / "input", number)

    def finish(self, number: int) -> None:
        """Closes every window: everything that was counted comes out."""
        data.write_last(self.folder / "input", number)

    @property
    def arguments(self) -> list[str]:
        return ["--input", str(self.folder / "input"), "--output", str(self.folder / self.out)]

    def complete(self, files: int) -> bool:
        """Whether as much came out as has to."""
        return _size(self.recognise()) >= _size(self.expected(files))

    def recognise(self) -> dict[str, Counter[str]]:
        """Everything that came out, without its order, with how often each record did."""
        output = self.folder / self.out
        return {
            name: Counter(
                json.dumps(json.loads(line), sort_keys=True)
                for path in sorted((output / name).glob("*.json"))
                for line in path.read_text().splitlines()
            )
            for name in ("counts", "joined")
        }

    def expected(self, files: int) -> dict[str, Counter[str]]:
        minutes: dict[tuple[str, str], list[int]] = {}
        paid = {p["order"]: p["paid"] for number in range(files) for p in data.payments(number)}
        joined = []
        for number in range(files):
            for order in data.orders(number):
                at = datetime.fromisoformat(order["at"]).strftime("%Y-%m-%d %H:%M:00")
                minutes.setdefault((at, order["shop"]), []).append(order["amount"])
                joined.append(
                    {
                        "order": order["order"],
                        "amount": order["amount"],
                        "paid": paid.get(order["order"]),
                    }
                )
        counts = [
            {"minute": minute, "shop": shop, "orders": len(amounts), "amount": sum(amounts)}
            for (minute, shop), amounts in minutes.items()
        ]
        return {"counts": _bag(counts), "joined": _bag(joined)}


def _bag(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)


def _size(results: dict[str, Counter[str]]) -> int:
    return sum(counter.total() for counter in results.values())
