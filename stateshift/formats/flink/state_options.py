"""What Flink requires of one state in a header: it reads options and serializers by name, and fails
on a missing one.

    kind              options                             serializers
    keyed             KEYED_STATE_TYPE                    NAMESPACE_SERIALIZER, VALUE_SERIALIZER
    operator          OPERATOR_STATE_DISTRIBUTION_MODE    VALUE_SERIALIZER
    broadcast         OPERATOR_STATE_DISTRIBUTION_MODE    KEY_SERIALIZER, VALUE_SERIALIZER
    timers                                                VALUE_SERIALIZER
    keyed (async)     KEYED_STATE_TYPE                    NAMESPACE_SERIALIZER, VALUE_SERIALIZER

The value of an option is the name of an enum constant. Options that are not required are ignored.

Flink: runtime/state/Registered{KeyValue, Operator, Broadcast, PriorityQueue}StateBackendMetaInfo,
state/v2/ RegisteredKeyValueStateBackendMetaInfo, metainfo/StateMetaInfoSnapshot,
StateDescriptor.Type, OperatorStateHandle.Mode; the same from 1.15 to 2.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

STATE_TYPE: Final = "KEYED_STATE_TYPE"
MODE: Final = "OPERATOR_STATE_DISTRIBUTION_MODE"
ROLES: Final = ("KEY_SERIALIZER", "NAMESPACE_SERIALIZER", "VALUE_SERIALIZER", "USER_KEY_SERIALIZER")

_CONSTANTS: Final[Mapping[str, tuple[str, ...]]] = {
    STATE_TYPE: ("UNKNOWN", "VALUE", "LIST", "REDUCING", "FOLDING", "AGGREGATING", "MAP"),
    MODE: ("SPLIT_DISTRIBUTE", "UNION", "BROADCAST"),
}


@dataclass(frozen=True, slots=True)
class Required:
    """The option that a kind of state has to have, and the roles of its serializers."""

    option: str | None
    roles: tuple[str, ...]


_KEYED = Required(STATE_TYPE, ("NAMESPACE_SERIALIZER", "VALUE_SERIALIZER"))
_REQUIRED: Final[Mapping[str, Required]] = {
    "keyed": _KEYED,
    "keyed (async)": _KEYED,
    "operator": Required(MODE, ("VALUE_SERIALIZER",)),
    "broadcast": Required(MODE, ("KEY_SERIALIZER", "VALUE_SERIALIZER")),
    "timers": Required(None, ("VALUE_SERIALIZER",)),
}


def fault_of_options(kind: str, options: Mapping[str, str]) -> str | None:
    """Return why Flink cannot restore a state with these options; None where it can."""
    option = _REQUIRED[kind].option
    if option is None:
        return None
    if option not in options:
        return f"has no option {option}"
    if options[option] not in _CONSTANTS[option]:
        return f"has the {option} {options[option]!r}, which Flink does not know"
    return None


def fault_of_roles(kind: str, roles: Collection[str], complete: bool) -> str | None:
    """Return why Flink cannot restore a state whose serializers have these roles; None where it
    can. The roles are `complete` unless a serializer that is not known here stands in front of
    others.
    """
    foreign = next((role for role in roles if role not in ROLES), None)
    if foreign is not None:
        return f"has a serializer {foreign!r}, which Flink does not look for"
    missing = [role for role in _REQUIRED[kind].roles if role not in roles]
    if complete and missing:
        return f"has no {missing[0]}"
    return None
