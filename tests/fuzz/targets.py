"""One target for each format: a function that takes any bytes and breaks only if we do.

Target  name     of the format
        run      decodes the bytes in every way there is, and holds these against each other
        seeds    where mutation starts
        modules  the sources under stateshift/ that it is about: minutes count for the code they
                 were spent on
        words    tokens of the format, for the mutator
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Run = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    name: str
    run: Run
    seeds: Callable[[], Iterable[bytes]]
    modules: tuple[str, ...]
    words: tuple[bytes, ...] = ()
    bytes_max: int = 8 * 1024


def spark(*names: str) -> tuple[str, ...]:
    return tuple(f"formats/spark/{name}.py" for name in names)


def of_rocksdb(*names: str) -> tuple[str, ...]:
    return tuple(f"formats/rocksdb/{name}.py" for name in names)


def entries(*names: str) -> tuple[str, ...]:
    return tuple(f"engines/spark/entries/{name}.py" for name in names)


def all_targets() -> dict[str, Target]:
    """By name. The modules are imported here, so that who instruments code can do so first."""
    from tests.fuzz import avro_rows, commands, flink, logs, ours, rows, state, tables, whole

    modules = (logs, rows, avro_rows, state, tables, whole, flink, ours, commands)
    found = [target for module in modules for target in module.TARGETS]
    return {target.name: target for target in found}
