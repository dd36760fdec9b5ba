"""A job as Flink plans it: its operators, and the answer of `capture.py` that they are read from.

Pure.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal

from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.serializers import Unknown, read_snapshot
from stateshift.formats.flink.type_names import type_name
from stateshift.plain import JsonObject

Role = Literal["keyed", "source", "operator"]
# Words in the names of Flink's backends and their classes, and the format that they read.
BACKENDS = {
    "rocksdb": "rocksdb",
    **dict.fromkeys(("hashmap", "filesystem", "jobmanager", "memory", "fs"), "hashmap"),
}


@dataclass(frozen=True, slots=True)
class CodeOperator:
    """An operator of the code.

    ids              by which it finds its state: that of its uid or place, and that of setUidHash
    plain_id         the id that it would have without its uid; None where it has none
    is_numbered      whether another run of the planner gives the uid to another operator
    key              the type of its keys in words; None of one that is not keyed, or not known
    code             the expressions that compute its state, where the planner of SQL tells them
    vertex           the number of its chain
    max_parallelism  None where the code does not set it: then Flink takes that of the state
    """

    ids: tuple[str, ...]
    plain_id: str | None
    uid: str | None
    is_numbered: bool
    name: str
    role: Role
    key: str | None
    vertex: int
    parallelism: int
    max_parallelism: int | None
    code: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The word that users know it by."""
        return self.uid or self.name

    def reads(self, role: Role, key: str | None) -> bool:
        """Whether it could read a state of this role, by keys of this type."""
        has_same_key = key is None or self.key is None or key == self.key
        return role == self.role and has_same_key

    @property
    def new_name(self) -> str:
        """The name under which it finds a state: of its uid if it has one, else its id."""
        return self.uid if self.uid is not None and len(self.ids) == 1 else self.ids[-1]


@dataclass(frozen=True, slots=True)
class CodeJob:
    """A job of the code. `backend` is None where neither code nor configuration names one."""

    name: str
    backend: str | None
    operators: tuple[CodeOperator, ...]

    @property
    def by_id(self) -> dict[str, CodeOperator]:
        """The operators by each id under which Flink looks for a state."""
        found: dict[str, CodeOperator] = {}
        for operator in self.operators:
            found.update(dict.fromkeys(operator.ids, operator))
        return found


def code_job(plain: JsonObject) -> CodeJob:
    """Return a job of the answer."""
    operators = tuple(_operator(each) for each in plain["operators"])
    backend: str | None = plain["backend"]
    words = [word for word in BACKENDS if word in (backend or "").lower()]
    return CodeJob(plain["name"], BACKENDS[words[0]] if words else backend, operators)


def _operator(plain: JsonObject) -> CodeOperator:
    ids = [plain["id"]]
    if plain["user_id"] is not None:
        ids.append(plain["user_id"])
    role: Role = "source" if plain["source"] else "operator"
    if plain["key"] is not None:
        role = "keyed"
    return CodeOperator(
        ids=tuple(ids),
        plain_id=plain["plain_id"] if plain["uid"] is not None else None,
        uid=plain["uid"],
        is_numbered=plain["numbered"],
        name=plain["name"],
        role=role,
        key=None if plain["key"] is None else type_in_words(base64.b64decode(plain["key"])),
        vertex=plain["vertex"],
        parallelism=plain["parallelism"],
        max_parallelism=plain["max_parallelism"],
        code=tuple(plain["code"]),
    )


def type_in_words(snapshot: bytes) -> str | None:
    """Return the type that a serializer is for, in words; None where it is not known here."""
    try:
        return type_name(read_snapshot(DataInput(snapshot, "a serializer"), nested=True))
    except (Unknown, FormatError):
        return None
