"""One key of a spec, and the keys of one kind of object.

    Key   one key: its canonical name, what kind of value it takes, and the field of the model it
          fills
    Keys  the keys of one kind of object, found by any spelling

A spelling is *folded* before it is looked up: lower case, without blanks, underscores and hyphens.
`merge_jobs`, `mergeJobs`, `Merge Jobs` and `MERGE-JOBS` are one key. The rows IS-1, IS-2 and IF-1
give INFORE's keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stateshift.suggestion import closest, suggest

Engine = Literal["spark", "flink"]


@dataclass(frozen=True, slots=True)
class Key:
    """`also` are other names of it, `aliases` those of its choices; `engine` the one that alone
    knows it, `hints_at` one it suggests where the spec does not name its engine; `blank_is_off` is
    INFORE's way to leave a key
    out; `for_all` may stand beside `jobs`; `added_by` is the group of entry points by which
    installed packages add choices. `implied`: where the key is left out, other keys decide, so that
    it has no default.
    """

    name: str
    kind: str
    about: str
    of: type | None = None
    field: str | None = None
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    engine: Engine | None = None
    hints_at: Engine | None = None
    blank_is_off: bool = False
    for_all: bool = False
    added_by: str | None = None
    implied: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def default(self) -> object:
        """What the model holds where the key is left out; MISSING where it must be given."""
        if self.of is None or self.field is None:
            return dataclasses.MISSING
        model = {f.name: f for f in dataclasses.fields(self.of)}[self.field]
        made = model.default_factory
        return model.default if made is dataclasses.MISSING else made()


class Keys:
    """The keys of one kind of object."""

    def __init__(self, *keys: Key) -> None:
        self.all = keys
        self._folded: dict[str, Key] = {}
        for key in keys:
            self._folded |= dict.fromkeys(map(fold, key.names), key)

    def __getitem__(self, name: str) -> Key:
        return self._folded[fold(name)]

    def find(self, spelling: str) -> Key | None:
        return self._folded.get(fold(spelling))

    def did_you_mean(self, spelling: str) -> str:
        """Return the suggestion of a key, whatever is between its words."""
        match = closest(fold(spelling), self._folded)
        return suggest(None if match is None else self._folded[match].name)


def fold(spelling: str) -> str:
    """Return a spelling without case, blanks, `_` and `-`, in which keys may differ."""
    return spelling.lower().replace(" ", "").replace("_", "").replace("-", "")
