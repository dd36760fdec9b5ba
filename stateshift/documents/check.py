"""The document of `check`: will this code start from that state? Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.shape import At
from stateshift.plain import JsonObject
from stateshift.specification.transform import (
    Change,
    Convert,
    Drop,
    Evolve,
    Rename,
    Repartition,
    Rescale,
)
from stateshift.storage.locations import Redacted

if TYPE_CHECKING:
    from stateshift.check.verdict import Checked, CheckedQuery, Difference

VerdictWord = Literal["starts", "not-known", "starts-but", "starts-after", "never"]


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """One query, and where its image is."""

    checked: Checked
    own: CheckedQuery

    @property
    def commands(self) -> list[str]:
        """The commands that make a state from which the code starts."""
        return commands_for(self.own, self.checked.image)

    @property
    def differences(self) -> list[DifferenceFacts]:
        """The differences, each with its commands."""
        return [DifferenceFacts(self.checked, each) for each in self.own.differences]


@dataclass(frozen=True, slots=True)
class DifferenceFacts:
    """One difference, and where the image is."""

    checked: Checked
    own: Difference

    @property
    def commands(self) -> list[str]:
        """The commands that mend this difference alone."""
        return commands_for(self.own, self.checked.image)


def queries_of(checked: Checked) -> list[QueryFacts]:
    """Return the facts of each query."""
    return [QueryFacts(checked, query) for query in checked.queries]


class DifferenceDocument(TypedDict):
    """One way in which code and state differ."""

    level: Annotated[
        Literal["note", "not-known", "starts-but", "starts-after", "never"],
        "the verdict that it leads to; a note leads to none",
        At("own.level"),
    ]
    rule: Annotated[str, "the rule that found it, which --waive takes", At("own.rule")]
    place: Annotated[str, "the operator, source or setting", At("own.place")]
    message: Annotated[Redacted, "the fact, in one line", At("own.message")]
    old: Annotated[Redacted | None, "what the checkpoint has", At("own.old")]
    new: Annotated[Redacted | None, "what the code has", At("own.new")]
    hint: Annotated[Redacted | None, "what to do about it", At("own.hint")]
    commands: Annotated[list[Redacted], "commands that change the state"]


class CheckedPartDocument(TypedDict):
    """An operator or a source of the code."""

    id: Annotated[str, "its number"]
    kind: Annotated[str, "its kind"]
    detail: Annotated[Redacted, "its columns, or what it reads"]


class StubbedDocument(TypedDict):
    """A source that was not reached: an empty one took its place."""

    kind: Annotated[str, "its kind"]
    options: Annotated[dict[str, str], "those of its options that tell what it reads"]
    reason: Annotated[Redacted | None, "why; null where --stub asked for it"]


class CheckDocument(TypedDict):
    """Whether a query of a file starts from a checkpoint."""

    query: Annotated[str | None, "the name of the query, or of Flink's job", At("own.query")]
    verdict: Annotated[VerdictWord, "whether it starts", At("own.verdict")]
    image: Annotated[Redacted, "the checkpoint", At("checked.image")]
    engine: Annotated[Literal["spark", "flink"], "the engine", At("checked.engine")]
    version: Annotated[str, "that of the engine that planned it", At("checked.engine_version")]
    findings: Annotated[list[DifferenceDocument], "the differences", At("differences")]
    commands: Annotated[list[Redacted], "what makes a state that it starts from, in this order"]
    operators: Annotated[
        list[CheckedPartDocument], "the code's stateful operators", At("own.operators")
    ]
    sources: Annotated[list[CheckedPartDocument], "the code's sources", At("own.sources")]
    stubbed: Annotated[
        list[StubbedDocument], "sources that were not reached", At("checked.stubbed")
    ]


# ---- commands ------------------------------------------------------------------------------------


def commands_for(asking: CheckedQuery | Difference, location: str) -> list[str]:
    """Return the commands that change the state, each from the result of the one before."""
    commands = []
    source = location.rstrip("/")
    steps = list(_steps(asking.changes))
    if asking.gather and not steps:
        steps = [["gather"]]
    for number, arguments in enumerate(steps, start=2):
        target = f"{location.rstrip('/')}-{number}"
        words = [arguments[0], source, "--to", target, *arguments[1:]]
        commands.append(f"stateshift {' '.join(quote(word) for word in words)}")
        source = target
    return commands


def _steps(changes: Sequence[Change]) -> Iterator[list[str]]:
    """Yield the words of each command; what renames and what drops is one."""
    renaming: list[str] = []
    for change in changes:
        if isinstance(change, Rename | Drop):
            renaming += words_of_rename(change)
    if renaming:
        yield ["rename", *renaming]
    for change in changes:
        match change:
            case Evolve():
                yield ["evolve", *_evolving(change)]
            case Repartition():
                yield ["repartition", "--partitions", str(change.partitions)]
            case Rescale():
                yield ["repartition", "--max-parallelism", str(change.max_parallelism)]
            case Convert():
                options = {"--provider": change.provider, "--codec": change.codec}
                options["--flink"] = change.flink
                given = {name: value for name, value in options.items() if value is not None}
                yield ["convert", *chain.from_iterable(given.items())]


def words_of_rename(change: Rename | Drop) -> Iterator[str]:
    """Yield the options of `rename`."""
    if isinstance(change, Drop):
        for operator in change.operators:
            yield from ("--drop-operator", operator)
        for source in change.sources:
            yield from ("--drop-source", source)
        return
    for old, new in change.operators.items():
        yield from ("--operator", f"{old}={new}")
    for old, new in change.sources.items():
        yield from ("--source", f"{old}={new}")


def _evolving(change: Evolve) -> Iterator[str]:
    yield from ("--operator", change.operator)
    if change.store != "default":
        yield from ("--store", change.store)
    for column in change.add:
        kind = column["type"] if isinstance(column["type"], str) else json.dumps(column["type"])
        default = "" if column.get("default") is None else f"={json.dumps(column['default'])}"
        after = f"@{column['after']}" if "after" in column else ""
        yield from ("--add", f"{column['name']}:{kind}{default}{after}")
    for name, kind in change.widen.items():
        yield from ("--widen", f"{name}={kind}")
    for name in change.drop:
        yield from ("--drop", name)
    for name in change.nullable:
        yield from ("--nullable", name)
    for name, kind in change.widen_key.items():
        yield from ("--widen-key", f"{name}={kind}")
    for name in change.nullable_key:
        yield from ("--nullable-key", name)


def spec_for(changes: Sequence[Change], location: str, engine: str = "spark") -> JsonObject:
    """Return the spec that makes all changes in one move, to a place beside the location."""
    target = f"{location.rstrip('/')}-2"
    name = target.rpartition("/")[2]
    transform = []
    for change in changes:
        plain: dict[str, object] = {"kind": change.kind}
        for each in fields(change):
            value = getattr(change, each.name)
            if value not in (None, (), {}):
                plain[each.name] = list(value) if isinstance(value, tuple) else value
        transform.append(plain)
    job = {
        "name": name,
        "checkpoint_location": location,
        "remote_location": target,
        "transform": transform,
    }
    return {"version": 1, "engine": engine, "jobs": [job]}
