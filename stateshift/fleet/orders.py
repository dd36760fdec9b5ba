"""Orders and answers, as the JSON that travels between driver and executor.

    order     {"stateshift": version, "ask": "run", "run": …, "token": …, "rates": [bytes/s,
              operations/s], "unsynced": [location, …], "claims": {place: [location,
              generation]}, …}
              ask     also holds
              run     step, there (of its files those that may be at the target; none where nobody
                      has looked)
              holds   step, evidence
              parts   location, shard, count
              bounds  step
              tables  step, ends: the keys between which they are; first: which of a target's tables
                      begins there
              version  step, targets: the known facts of the tables of each
              deep    survey, image: a portion of one; reads: which part of it; tally: whether
                      tallies are asked for
              histories  survey, image: a portion of one; tallies, as `deep` answered
              fold    ends, side, shards, settings: of this side
              pick    the same, and wanted: buckets by store
              export  survey: of one shard; wanted, format
              check   modules, locations, there (directories that everybody has to see)
    answer    {"host": …, "done": …}            the result
              {"host": …, "failed": {…}}        one of our errors, which is raised again as it was
              {"host": …, "broke": {…}}         anything else: a bug of ours, with its traceback
              {"host": …, "missing": "mmh3"}    a Python package that the executor has not
    and, from the carrier, "attempt": the number of times that Spark had begun it before

Nothing that is secret stands in either: credentials are the executor's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from stateshift import __version__, errors, plain
from stateshift.errors import ClusterError, StateshiftError
from stateshift.step import AnyStep
from stateshift.world import Limits

# The values that travel. Each end runs the same version, and knows the types of its requests.
Json: TypeAlias = Any
Order: TypeAlias = Mapping[str, Json]
# Orders of one kind go out to any that is free; their answers come back in the same order.
Spread: TypeAlias = Callable[[str, Iterable[Order]], Iterator[Json]]
# The same of orders that a step is carried out by, each answer with whether an attempt before may
# have done some of it.
AskAll: TypeAlias = Callable[[str, Sequence[Order]], Sequence[tuple[Json, bool]]]


# The name of a package on PyPI where it is not that of its module.
_PACKAGES = {"google_crc32c": "google-crc32c"}


class Broke(RuntimeError):
    """A bug of ours that showed itself on an executor; its notes hold the traceback from there."""


def encode_order(
    ask: str, run: str, token: str, rates: Limits | None = None, share: int = 1, **more: object
) -> str:
    """Return an order that may use its `share`-th part of the rates."""
    limits: tuple[float | None, float | None] = (None, None)
    if rates is not None:
        limits = (rates.bytes_per_second, rates.operations_per_second)
    order = {
        "stateshift": __version__,
        "ask": ask,
        "run": run,
        "token": token,
        "rates": [rate / share if rate else None for rate in limits],
        **more,
    }
    return json.dumps(plain.to_plain(order))


def decode_order(text: str) -> Order:
    """Return the order, if this version of us can carry it out."""
    order: Order = json.loads(text)
    if order["stateshift"] != __version__:
        raise ClusterError(
            f"an executor has stateshift {__version__}, and the driver {order['stateshift']}",
            hint="stop the other driver's application, or install the same version on the "
            "executors",
        )
    return order


def decode_step(value: Json) -> AnyStep:
    """Return the step that an executor carries out."""
    step: AnyStep = plain.from_plain(AnyStep, value)
    return step


def encode_error(error: StateshiftError) -> dict[str, object]:
    """Return everything an error holds, under its class's name."""
    return {"class": type(error).__name__, "arguments": list(error.args), "held": dict(vars(error))}


def decode_error(value: Mapping[str, Json]) -> StateshiftError:
    """Return the error, made without its constructor: each class has another, fields are alike."""
    kind = getattr(errors, value["class"], None)
    if not (isinstance(kind, type) and issubclass(kind, StateshiftError)):
        kind = StateshiftError  # of another version's classes, the one above all
    error = kind.__new__(kind, *value["arguments"])
    error.__dict__.update(value["held"])
    return error


def encode_answer(host: str, **fields: object) -> str:
    """Return an executor's answer as text: its host, and the result or the error."""
    return json.dumps({"host": host, **plain.to_plain(fields)}, default=str)


def decode_answer(text: str) -> tuple[Json, bool]:
    """Return the result, and whether an attempt before may have done part; or raise its error."""
    answer = json.loads(text)
    host = answer["host"]
    if "missing" in answer:
        package = _PACKAGES.get(answer["missing"], answer["missing"])
        raise ClusterError(
            f"executor {host} has no Python package {package!r}",
            cluster="fleet",
            hint=f"install it there (pip install {package}), or name a Python that has it: "
            "PYSPARK_PYTHON=/path/to/python3",
        )
    if "failed" in answer:
        error = decode_error(answer["failed"])
        error.where.setdefault("executor", host)
        raise error
    if "broke" in answer:
        bug = answer["broke"]
        if bug.get("os_error"):
            raise OSError(*bug["os_error"])
        if bug.get("memory"):
            raise MemoryError(bug["message"])
        broke = Broke(f"on executor {host}: {bug['message']}")
        broke.add_note(bug["traceback"])
        raise broke
    return answer["done"], answer.get("attempt", 0) > 0
