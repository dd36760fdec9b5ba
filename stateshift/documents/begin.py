"""The documents of `doctor`, a line for each thing that was looked at, and of `init`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypedDict

from stateshift.storage.locations import Redacted

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a run needs, and whether it is there. `hint` is the way out."""

    schema_name: ClassVar = "Check"
    check: Annotated[
        str,
        "packages, policy, java, list, read, create, delete, space, clock, cluster, slots, room or "
        "brokers",
    ]
    subject: Annotated[Redacted, "the location, the cluster, the brokers, or what is asked for"]
    state: Annotated[State, "fail: a run would fail; warn: it may"]
    fact: Annotated[Redacted, "what was found, in one line"]
    hint: Annotated[Redacted | None, "what to do about it"] = None


class InitDocument(TypedDict):
    """The spec that `init` has written."""

    spec: Annotated[str, "its file"]
    page: Annotated[str, "the page that explains it"]
    goal: Annotated[Literal["move", "standby", "rebalance", "drill"], "what it is for"]
    found: Annotated[list[Redacted], "what was found"]
    refusals: Annotated[list[Redacted], "why `plan` refuses it as it is; empty if it does not"]
