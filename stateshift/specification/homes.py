"""Hints for keys that stand at the wrong place of a spec.

    meant("waves", JOB)   ", which belongs at the top, beside 'jobs'"
    meant("rewind", JOB)  ', which belongs inside a job, as "transform": [{"kind": "rewind", …}]'
    meant("fork", SPEC)   ', which belongs inside a job, as "mode": "fork"'
    meant("nmae", JOB)    the key of a job that is spelled alike

A key of the spec or of a job comes first, then a change or another value that is one of a few. A
smaller part that has such a key comes last: many of its keys are near misses of keys that are meant
to stand here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateshift.specification.changes import COLUMN, TRANSFORMS
from stateshift.specification.job_keys import (
    DATA,
    JOB,
    KAFKA,
    OPERATOR,
    SINK,
    SOURCE,
    STOP,
    SUBMIT,
    VERIFY,
)
from stateshift.specification.key import Keys, fold
from stateshift.specification.rebalancing import CAPACITY, REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.receivers import ON, RECEIVER
from stateshift.specification.spec_keys import CLUSTER, HASH, SPEC, THROTTLE

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
_CHANGES: Mapping[str, Keys] = {
    f'{IN_A_JOB}, as "transform": [{{"kind": "{kind}", …}}]': keys
    for kind, keys in TRANSFORMS.items()
}


def meant(spelling: str, here: Keys) -> str:
    """Return the hint for a spelling that is no key `here`."""
    near = here.did_you_mean(spelling)
    home = _home_of(spelling, here)
    is_part_of_near = fold(spelling) in fold(near)  # `location` of remote_location
    if home is None and not is_part_of_near:
        home = _few(_parts_with(spelling))
    return near if home is None else f", which belongs {home}"


def _home_of(spelling: str, here: Keys) -> str | None:
    """Return the place to which a spelling belongs; None where nobody can tell."""
    # A job's key that is one of several other parts says nothing below a job.
    is_common = here is not SPEC and len(list(_parts_with(spelling))) >= HOMES_MAX
    if here is not JOB and JOB.find(spelling) and not is_common:
        return IN_A_JOB
    if here is not SPEC and SPEC.find(spelling):
        return AT_THE_TOP
    return _few(_values_spelled(spelling))


def _few(homes: Iterator[str]) -> str | None:
    different = dict.fromkeys(homes)
    return ", or ".join(different) if 0 < len(different) <= HOMES_MAX else None


def _values_spelled(spelling: str) -> Iterator[str]:
    """Yield the places where the spelling is a value, and not a key."""
    folded = fold(spelling)
    for kind, where in zip(TRANSFORMS, _CHANGES, strict=True):
        if fold(kind) == folded:
            yield where
    for where, keys in {IN_A_JOB: JOB, AT_THE_TOP: SPEC, **_PARTS}.items():
        for key in keys.all:
            is_a_jobs = keys is SPEC and key.for_all
            for choice in () if is_a_jobs else key.choices:
                if fold(choice) == folded:
                    yield f'{where}, as "{key.name}": "{choice}"'


def _parts_with(spelling: str) -> Iterator[str]:
    for where, keys in {**_PARTS, **_CHANGES}.items():
        if keys.find(spelling):
            yield where
