"""The demo's data: orders and their payments, the same ones every time, five seconds of them in
each file.

    INPUT/orders/0007.json    {"order", "shop", "amount", "at"}  25 lines
    INPUT/payments/0007.json  {"order", "paid", "at"}            the payments made in those five seconds

Event times are fixed and never run ahead of the files before, so no record is ever late, however
the job cuts its batches; every fifth order is never paid. The last file of both closes every window
and gives up on every payment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SECONDS_PER_FILE = 5
ORDERS_PER_FILE = 25
SHOPS = ("books", "garden", "music", "toys")
START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def orders(number: int) -> Iterator[dict[str, Any]]:
    for i in range(ORDERS_PER_FILE):
        yield {
            "order": f"{number:04}-{i:02}",
            "shop": SHOPS[(number + i * i) % len(SHOPS)],
            "amount": (number * 7 + i * 13) % 97 + 1,
            "at": _text(_ordered_at(number, i)),
        }


def payments(number: int) -> Iterator[dict[str, Any]]:
    """Payments come up to twelve seconds after their order, so up to three files later."""
    begin = START + timedelta(seconds=number * SECONDS_PER_FILE)
    end = begin + timedelta(seconds=SECONDS_PER_FILE)
    for ordered in range(max(0, number - 3), number + 1):
        for i in range(ORDERS_PER_FILE):
            paid_at = _ordered_at(ordered, i) + timedelta(seconds=(ordered + i * 5) % 12)
            if i % 5 and begin <= paid_at < end:
                yield {
                    "order": f"{ordered:04}-{i:02}",
                    "paid": ordered * 100 + i,
                    "at": _text(paid_at),
                }


def write(folder: Path, number: int) -> None:
    """Both files of one number: payments first, so that none waits for an order that is not
    there yet.
    """
    _write_whole(folder / "payments" / f"{number:04}.json", payments(number))
    _write_whole(folder / "orders" / f"{number:04}.json", orders(number))


def write_last(folder: Path, number: int) -> None:
    for name, records in last(number).items():
        _write_whole(folder / name / f"{number:04}.json", records)


def last(number: int) -> dict[str, list[dict[str, Any]]]:
    """An hour later one more order and one more payment, which have nothing to do with each
    other.
    """
    at = _text(START + timedelta(seconds=number * SECONDS_PER_FILE, hours=1))
    return {
        "payments": [{"order": "nobody's", "paid": 0, "at": at}],
        "orders": [{"order": "last", "shop": "none", "amount": 0, "at": at}],
    }


def _ordered_at(number: int, i: int) -> datetime:
    return START + timedelta(
        seconds=number * SECONDS_PER_FILE + i * SECONDS_PER_FILE / ORDERS_PER_FILE
    )


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _write_whole(path: Path, records: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    """A file appears whole: Spark reads whatever has a name that does not begin with a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.replace(hidden, path)
