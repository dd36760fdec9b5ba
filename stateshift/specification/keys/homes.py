"""Where a spelling belongs that stands at the wrong place of a spec.

    home_of("waves", JOB)   "at the top, beside 'jobs'"
    home_of("rewind", JOB)  'inside a job, as "transform": [{"kind": "rewind", …}]'
    home_of("fork", SPEC)   'inside a job, as "mode": "fork"'

A key of the spec or of a job comes first, then a change or another value that is one of a few.
`part_of` gives the smaller part that has such a key: many of those are near misses of keys that are
meant to stand here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.specification.keys.changes import COLUMN, TRANSFORMS
from stateshift.specification.keys.job import JOB
from stateshift.specification.keys.key import Keys, fold
from stateshift.specification.keys.parts import (
    CLUSTER,
    DATA,
    HASH,
    KAFKA,
    ON,
    OPERATOR,
    RECEIVER,
    SINK,
    SOURCE,
    STOP,
    SUBMIT,
    THROTTLE,
    VERIFY,
)
from stateshift.specification.keys.rebalancing import CAPACITY, REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.keys.spec import SPEC

IN_A_JOB = "inside a job"
AT_THE_TOP = "at the top, beside 'jobs'"

# A spelling with more homes than these says nothing of what was meant, such as `name`.
HOMES_MAX = 2

_PARTS: Mapping[str, Keys] = {
    "inside 'submit' of a job": SUBMIT,
    "inside 'stop' of a job": STOP,
    "inside 'data' of a job": DATA,
    "inside 'kafka' of a job": KAFKA,
    "inside 'verify' of a job": VERIFY,
    "inside 'sink' of a job": SINK,
    "inside one of a job's 'sources'": SOURCE,
    "inside one of a job's 'operators'": OPERATOR,
    "inside one of 'clusters'": CLUSTER,
    "inside 'throttle'": THROTTLE,
    "inside 'uid_hash'": HASH,
    "inside 'on'": ON,
    "inside an event of 'on'": RECEIVER,
    "inside 'rebalance'": REBALANCE,
    "inside one of the 'clusters' of 'rebalance'": REBALANCED_CLUSTER,
    "inside 'capacity' of a cluster of 'rebalance'": CAPACITY,
    "inside a column of 'add'": COLUMN,
}

_ALL = (JOB, SPEC, *_PARTS.values(), *TRANSFORMS.values())


def home_of(spelling: str, here: Keys) -> str | None:
    """Return where a spelling belongs that is no key `here`; None where nobody can tell."""
    if here not in _ALL:  # a dataflow's file has keys of its own
        return None
    if here is not JOB and JOB.find(spelling) and not _is_common(spelling, here):
        return IN_A_JOB
    if here is not SPEC and SPEC.find(spelling):
        return AT_THE_TOP
    return _few(dict.fromkeys(_values_spelled(spelling)))


def part_of(spelling: str, here: Keys) -> str | None:
    """Return the smaller part of a spec that has such a key; None where nobody can tell."""
    if here not in _ALL:
        return None
    return _few(dict.fromkeys(_parts_with(spelling)))


def _is_common(spelling: str, here: Keys) -> bool:
    """Whether a job's key is one of so many other parts that, below a job, it says nothing."""
    return here is not SPEC and len(list(_parts_with(spelling))) >= HOMES_MAX


def _few(homes: Mapping[str, None]) -> str | None:
    if not homes or len(homes) > HOMES_MAX:
        return None
    return ", or ".join(homes)


def _values_spelled(spelling: str) -> Iterator[str]:
    """Yield where the spelling is a value, and not a key."""
    folded = fold(spelling)
    for kind in TRANSFORMS:
        if fold(kind) == folded:
            yield _as_change(kind)
    yield from _choices(folded, JOB, IN_A_JOB)
    yield from _choices(folded, SPEC, AT_THE_TOP)
    for where, keys in _PARTS.items():
        yield from _choices(folded, keys, where)


def _choices(folded: str, keys: Keys, where: str) -> Iterator[str]:
    """Yield where one of these keys has the spelling as a choice."""
    for key in keys.all:
        for choice in key.choices:
            is_a_jobs = keys is SPEC and key.for_all
            if fold(choice) == folded and not is_a_jobs:
                yield f'{where}, as "{key.name}": "{choice}"'


def _parts_with(spelling: str) -> Iterator[str]:
    for where, keys in _PARTS.items():
        if keys.find(spelling):
            yield where
    for kind, keys in TRANSFORMS.items():
        if keys.find(spelling):
            yield _as_change(kind)


def _as_change(kind: str) -> str:
    return f'{IN_A_JOB}, as "transform": [{{"kind": "{kind}", …}}]'
