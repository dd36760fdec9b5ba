"""Whether the containers of a job that is to start find a place on the nodes of its cluster: by
first fit decreasing, which is an estimate. Schedulers spread them, and others start meanwhile.

    Container   one of a job, with its amounts: {"cpu": cores, "memory": bytes, ...}
    Node        a machine with what it has, and what is free on it
    Spark's     a driver and executors, by its settings (apache/spark: ResourceProfile,
                BasicDriverFeatureStep, resourcemanagers/yarn Client)

Only what a job cannot start without is counted: where a number is not said, the least. Amounts are
Decimal: a third of a core is nobody's, but a thousandth is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from stateshift.clusters.protocol import Fit
from stateshift.errors import ClusterError
from stateshift.specification.values import size_of

Amounts: TypeAlias = Mapping[str, Decimal]
_MIB: Final = Decimal(1 << 20)
_GIB: Final = Decimal(1 << 30)
_MIN_OVERHEAD: Final = "384m"
COUNTED_MAX: Final = 1000  # containers of a job


@dataclass(frozen=True, slots=True)
class Container:
    """A container to start, with what it needs."""

    role: str
    needs: Amounts


@dataclass(frozen=True, slots=True)
class Node:
    """A node that takes containers; what is placed on it is taken from `free`."""

    all: Amounts
    free: dict[str, Decimal]


def without_place(
    containers: Sequence[Container], free: Sequence[dict[str, Decimal]]
) -> list[Container]:
    """Return the containers that find no place, the largest first; take the place of the others."""
    left: list[Container] = []
    last, index = None, 0
    for container in sorted(containers, key=lambda each: _size(each.needs), reverse=True):
        if container != last:
            index = 0  # else those before had no place for its like
        last, needs = container, container.needs
        while index < len(free):
            amounts = free[index]
            if all(amounts.get(name, Decimal(-1)) >= needed for name, needed in needs.items()):
                amounts |= {name: amounts[name] - needed for name, needed in needs.items()}
                break
            index += 1
        else:
            left.append(container)
    return left


def fit_on(nodes: Sequence[Node], containers: Sequence[Container], word: str) -> Fit:
    """Return whether a job fits on these nodes, and take its place. `word` is a container's."""
    most = in_words(max((node.free for node in nodes), key=_size, default={}))
    left = without_place(containers, [node.free for node in nodes])
    if not left:
        return Fit()
    of_each = Counter(f"{each.role} ({in_words(each.needs)})" for each in left)
    kinds = ", ".join(f"{count} {words}" for words, count in of_each.items())
    fact = (
        f"it has room for {len(containers) - len(left)} of the {len(containers)} {word}s, by first "
        f"fit on its {len(nodes)} nodes: no place for {kinds}; the most that is free on one node "
        f"is {most or 'nothing'}"
    )
    return Fit(fact, is_ever=bool(without_place(containers, [{**node.all} for node in nodes])))


def _size(amounts: Amounts) -> tuple[Decimal, Decimal]:
    return amounts.get("memory", Decimal()), amounts.get("cpu", Decimal())


def in_words(amounts: Amounts) -> str:
    """Return amounts for a person: "2 cores, 4.5 GiB"; pods only where there are none."""
    words = []
    for name, amount in amounts.items():
        match name:
            case "cpu":
                words.append(f"{float(amount):g} cores")
            case "memory":
                words.append(f"{float(amount / _GIB):.1f} GiB")
            case "pods" if amount <= 0:
                words.append("no pod more")
    return ", ".join(words)


# ---- Spark


def spark_containers(
    conf: Mapping[str, str], on: Literal["yarn", "kubernetes"], is_python: bool = False
) -> list[Container]:
    """Return the driver and the executors that a job with these settings goes on with.

    Raises:
        ClusterError: a setting is no number, or of more executors than are counted.
    """
    of_k8s = conf.get("spark.kubernetes.memoryOverheadFactor")
    usual = "0.4" if on == "kubernetes" and is_python else "0.1"  # NON_JVM_MEMORY_OVERHEAD_FACTOR
    sizes: dict[str, dict[str, Decimal]] = {}
    for part in ("driver", "executor"):
        prefix = f"spark.{part}"
        memory = _mebibytes(conf, f"{prefix}.memory", "1g")
        factor = conf.get(f"{prefix}.memoryOverheadFactor") or of_k8s or usual
        least = _mebibytes(conf, f"{prefix}.minMemoryOverhead", _MIN_OVERHEAD)
        share = memory * _number(factor, f"{prefix}.memoryOverheadFactor")
        overhead = max(least, share // _MIB * _MIB)
        if f"{prefix}.memoryOverhead" in conf:
            overhead = _mebibytes(conf, f"{prefix}.memoryOverhead", "0")
        cores = _number(conf.get(f"{prefix}.cores", "1"), f"{prefix}.cores")
        sizes[part] = {"cpu": cores, "memory": memory + overhead}
    if str(conf.get("spark.memory.offHeap.enabled", "")).lower() == "true":
        sizes["executor"]["memory"] += _mebibytes(conf, "spark.memory.offHeap.size", "0")
    if is_python:
        sizes["executor"]["memory"] += _mebibytes(conf, "spark.executor.pyspark.memory", "0")
    key = "spark.executor.instances"
    if str(conf.get("spark.dynamicAllocation.enabled", "")).lower() == "true":
        key = "spark.dynamicAllocation.minExecutors"
    count = int(_number(conf.get(key, "1"), key))
    if count > COUNTED_MAX:
        raise ClusterError(f"more than {COUNTED_MAX} executors are not counted ({key})")
    return [
        Container("driver", sizes["driver"]),
        *[Container("executor", sizes["executor"])] * count,
    ]


def _mebibytes(conf: Mapping[str, str], key: str, usual: str) -> Decimal:
    """Return the bytes of a setting; a number without a unit is MiB."""
    text = str(conf.get(key, usual)).strip()
    size = size_of(f"{text}m" if text.isdecimal() else text)
    if size is None:
        raise ClusterError(f"{key} is no size of memory: {text!r}")
    return Decimal(size)


def _number(text: str, key: str) -> Decimal:
    try:
        number = Decimal(text)
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < 1_000_000:
        raise ClusterError(f"{key} is no number: {text!r}")
    return number
