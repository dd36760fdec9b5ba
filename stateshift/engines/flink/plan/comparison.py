"""How a Flink plan proves that the target holds what its sources hold: a comparison for each image,
and one for each operator that is made of several. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.engines.flink import layout
from stateshift.engines.flink.entries.image import SETTING
from stateshift.engines.flink.image import metadata_of
from stateshift.engines.flink.plan.copy import rewritten_names, unkeyed_names
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.flink.rewrite.unkeyed import handles_of
from stateshift.formats.flink.operator_handles import BROADCAST
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import files_of
from stateshift.step import CompareImages
from stateshift.step.images import Side
from stateshift.survey import Image, ShardFiles, Survey


@dataclass(frozen=True, slots=True)
class _Source:
    """The part of an image that a comparison reads: operators, each with its id in the target."""

    number: int
    operators: Mapping[str, str]

    @property
    def id_before(self) -> dict[str, str]:
        return {new: old for old, new in self.operators.items()}


def compares(move: Move) -> Iterator[CompareImages]:
    """Compare image by image; an operator that is made of several, by itself."""
    united = move.redistribution.united
    apart = frozenset(chain.from_iterable(rewritten.sources for rewritten in united))
    for number, taken in enumerate(move.choice.taken):
        operators = {}
        for old, (new, _) in taken.operators.items():
            if (number, old) not in apart:
                operators[old] = new
        if operators:
            yield _comparison(f"compare/{number}", move, [_Source(number, operators)])
    for rewritten in united:
        sources = [_Source(number, {old: rewritten.operator}) for number, old in rewritten.sources]
        yield _comparison(f"compare/{rewritten.operator}", move, sources)


def _comparison(name: str, move: Move, sources: Sequence[_Source]) -> CompareImages:
    operators: dict[str, None] = {}
    for source in sources:
        operators.update(dict.fromkeys(source.operators.values()))
    whole = sorted(operator for operator in operators if move.rewritten(operator) is None)
    by_id = {each.operator: each for each in map(move.rewritten, operators) if each is not None}
    # The operators whose unkeyed state is rewritten.
    once: dict[str, list[str]] = {id_: [] for id_, each in by_id.items() if each.unkeyed}
    at_target = {"root": move.target, "image": "", "checked": True, "whole": whole, "once": once}
    edits = {id_: rewritten.edit.plain() for id_, rewritten in by_id.items() if rewritten.edit}
    if edits:
        at_target["read"] = {id_: list(plain["evolve"]) for id_, plain in edits.items()}
    sides = []
    for source in sources:
        survey, image = move.surveys[source.number], move.surveys[source.number].images[0]
        places = move.choice.taken[source.number].places
        own = {**places.plain(), "whole": whole, "once": once, "as": source.id_before}
        own = {**own, "edits": edits} if edits else own
        if source.number == 0:
            new = {id_: each.plain() for id_, each in move.new_offsets.items()}
            own = {**own, "new_offsets": new} if new else own
        settings = {SETTING: json.dumps(own, sort_keys=True)}
        sides.append(Side(survey.location, tuple(_shards(image, source)), settings))
        # Each subtask has all broadcast state: what an earlier image has is not counted again.
        once = {
            operator: sorted({*seen, *_broadcast(image, source.id_before.get(operator))})
            for operator, seen in once.items()
        }
    first = sides[0]
    return CompareImages(
        name=name,
        engine=layout.ENGINE,
        source=first.location,
        target=move.target,
        source_shards=first.shards,
        target_shards=tuple(_target_shards(move, sources, operators)),
        paths=(),
        settings=first.settings,
        size=sum(_bytes_read(move.surveys[source.number], source) for source in sources),
        target_settings={SETTING: json.dumps(at_target, sort_keys=True)},
        beside=tuple(sides[1:]),
    )


def _shards(image: Image, source: _Source) -> Iterator[ShardFiles]:
    shards = {shard.operator: shard for shard in image.shards}
    for old, new in source.operators.items():
        yield replace(shards[old], operator=new)


def _bytes_read(survey: Survey, source: _Source) -> int:
    sizes = {file.path: file.size for file in survey.files}
    paths: set[str] = set()
    for shard in _shards(survey.images[0], source):
        paths.update(shard.files)
    return sum(sizes.get(path, 0) for path in paths)


def _target_shards(
    move: Move, sources: Sequence[_Source], operators: Iterable[str]
) -> Iterator[ShardFiles]:
    """Yield the files of each operator in the target: those that are kept, then those written."""
    names: dict[str, dict[str, None]] = {operator: {} for operator in operators}
    for source in sources:
        image, taken = move.surveys[source.number].images[0], move.choice.taken[source.number]
        roles: dict[str, dict[str, str]] = {}
        for reference in references(metadata_of(image)):
            if reference.operator not in taken.operators:
                continue
            own = roles.setdefault(reference.operator, {})
            for file in files_of(reference.stream):
                name = taken.name(file, reference.whole)
                if own.get(name, "keyed") == "keyed":
                    own[name] = reference.role
        for old, new in source.operators.items():
            for name, role in roles.get(old, {}).items():
                if not move.is_rewritten(source.number, old, role):
                    names[new][name] = None
    for operator, kept in names.items():
        written = _written_names(move, operator)
        yield ShardFiles(operator, "", 0, (layout.STAGED, *{**kept, **dict.fromkeys(written)}))


def _written_names(move: Move, operator: str) -> list[str]:
    rewritten = move.rewritten(operator)
    if rewritten is None:
        return []
    unkeyed = unkeyed_names(move.choice, rewritten)
    return [*rewritten_names(move.choice, rewritten), *chain.from_iterable(unkeyed.values())]


def _broadcast(image: Image, operator: str | None) -> set[str]:
    names: set[str] = set()
    subtasks = (o.all_subtasks for o in metadata_of(image).operators if o.id.hex() == operator)
    for _, handle in chain.from_iterable(map(handles_of, chain.from_iterable(subtasks))):
        broadcast = [state for state in handle.states if state.mode == BROADCAST]
        names.update(state.name for state in broadcast if state.offsets)
    return names
