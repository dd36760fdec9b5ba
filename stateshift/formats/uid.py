"""Names of operators as directory names (INFORE D5.2, 6.2) and as Flink's operator ids.

    directory  <hash>[_<content of the last non-empty parentheses>]
               "SKtest(mytest)" -> 552794753_mytest
    results    <directory>_RES in production, none in debug
    hash       sum of (code unit + offset) * p^i, i from 0, reduced mod m at each step: the
               textbook's polynomial rolling hash with p = 31, m = 10^9 + 9 and 'a' = 1 (offset
               -96). D5.2 never published its constants.
    signed     with Java's %, which keeps the sign of the dividend at each step: the hash may be
               negative

Characters are UTF-16 code units, as Java's `String.charAt` sees them, so that a Java implementation
agrees on names outside the basic plane too. The arithmetic is exact where Java's `long` wraps,
which p and m below 2^46 never reach.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class RollingHash:
    """The constants of one rolling hash; the fields are those of the spec's profile."""

    p: int = 31
    m: int = 1_000_000_009
    offset: int = -96
    signed: bool = False


PROFILES = {"default": RollingHash(), "java-signed": RollingHash(signed=True)}


def rolling_hash(
    name: str, p: int = 31, m: int = 1_000_000_009, offset: int = -96, signed: bool = False
) -> int:
    """Return the hash of `name`; never negative unless `signed`."""
    encoded = name.encode("utf-16-le", "surrogatepass")
    value, power = 0, 1
    for unit in struct.unpack(f"<{len(encoded) // 2}H", encoded):
        value += (unit + offset) * power
        # Java's % truncates towards zero.
        value = -(-value % m) if signed and value < 0 else value % m
        power = power * p % m
    return value


def directory_name(
    name: str, p: int = 31, m: int = 1_000_000_009, offset: int = -96, signed: bool = False
) -> str:
    """Return the directory of the operator `name`: its hash, and a readable part."""
    content = last_parentheses(name)
    hashed = str(rolling_hash(name, p, m, offset, signed))
    return f"{hashed}_{_UNSAFE.sub('_', content)}" if content else hashed


def last_parentheses(name: str) -> str:
    """Return the content of the last pair of parentheses that holds something, or ""."""
    opened: list[int] = []
    last = (-1, -1)
    for position, character in enumerate(name):
        if character == "(":
            opened.append(position)
        elif character == ")" and opened:
            start = opened.pop()
            if position > start + 1 and start > last[0]:
                last = (start, position)
    return name[last[0] + 1 : last[1]] if last[0] >= 0 else ""


def results_directory(directory: str, production: bool) -> str | None:
    """Return the place of the operator's results: beside its state, none in debug."""
    return f"{directory}_RES" if production else None


def flink_operator_id(uid: str) -> str:
    """Return Flink's id of the operator with this uid, as in savepoints and the REST API.

    Flink, StreamGraphHasherV2 (1.2 and later): Guava's murmur3_128 (x64), seed 0, over UTF-8,
    `HashCode.asBytes`: h1, then h2, each little-endian. Java writes a lone surrogate as "?".
    """
    import mmh3  # a job that imports `stateshift.job` needs none of our packages in its cluster

    return mmh3.mmh3_x64_128_digest(uid.encode("utf-8", "replace"), 0).hex()


def collisions(
    names: Iterable[str], directory: Callable[[str], str]
) -> tuple[tuple[str, str, str], ...]:
    """Return (first, second, directory) of every two names that share a directory."""
    first: dict[str, str] = {}
    shared = []
    for name in names:
        place = directory(name)
        if place in first:
            shared.append((first[place], name, place))
        else:
            first[place] = name
    return tuple(shared)
