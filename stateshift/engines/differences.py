"""What two images differ in. Types only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Change = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs, decoded as far as it can be. `before` is A's value, `after` B's; None where it is not."""

    operator: str
    store: str
    change: Change
    key: Any
    before: Any
    after: Any


@dataclass(slots=True)
class Counts:
    """What was found of one store of one operator."""

    operator: str
    store: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)


@dataclass(slots=True)
class Differences:
    """`incomparable` names stores, and why nothing can be said about them."""

    stores: list[Counts] = field(default_factory=list)
    incomparable: list[tuple[str, str, str]] = field(default_factory=list)
    shown: list[Difference] = field(default_factory=list)
    epochs: tuple[int | None, int | None] = (None, None)

    @property
    def equal(self) -> bool:
        return not self.incomparable and all(store.equal for store in self.stores)
