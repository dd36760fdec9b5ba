"""How a Flink plan proves that the target holds what its sources hold: a comparison for each image,
and one for each operator that is made of several. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stateshift.engines.flink import layout
from stateshift.engines.flink.entries.image import SETTING
from stateshift.engines.flink.image import metadata_of
from stateshift.engines.flink.plan.copy import loose_names, names_anew
from stateshift.engines.flink.rewrite.choice import Choice, Dealing
from stateshift.engines.flink.rewrite.metadata import Taken
from stateshift.engines.flink.rewrite.unkeyed import handles_of
from stateshift.formats.flink.operator_handles import BROADCAST
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import files_of
from stateshift.specification import JobSpec
from stateshift.step import CompareImages
from stateshift.step.images import Side
from stateshift.survey import Image, ShardFiles, Survey


def compares(
    job: JobSpec, surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> Iterator[CompareImages]:
    """Image by image; what is made of several, by itself."""
    if job.verify == "none":
        return
    united = [one for one in deal.anew if len(one.sources) > 1]
    apart = {source for one in united for source in one.sources}
    for number, taken in enumerate(choice.taken):
        own = [(old, new[0]) for old, new in taken.operators.items() if (number, old) not in apart]
        if own:
            yield _compared(f"compare/{number}", surveys, choice, target, deal, [(number, own)])
    for one in united:
        of_images = [(number, [(old, one.operator)]) for number, old in one.sources]
        yield _compared(f"compare/{one.operator}", surveys, choice, target, deal, of_images)


def _compared(
    name: str,
    surveys: Sequence[Survey],
    choice: Choice,
    target: str,
    deal: Dealing,
    of_images: Sequence[tuple[int, Sequence[tuple[str, str]]]],
) -> CompareImages:
    """`of_images`: (image, [(operator there, in the target)])."""
    anew = {one.operator: one for one in deal.anew}
    new = list(dict.fromkeys(operator for _, pairs in of_images for _, operator in pairs))
    told = {"whole": sorted(set(new) - anew.keys())}
    once: dict[str, list[str]] = {id_: [] for id_ in new if id_ in anew and anew[id_].loose}
    kept: dict[str, dict[str, None]] = {operator: {} for operator in new}
    sides, size = [], 0
    for number, pairs in of_images:
        survey, taken = surveys[number], choice.taken[number]
        image, sizes = survey.images[0], {file.path: file.size for file in survey.files}
        own, names = {shard.operator: shard for shard in image.shards}, _names(image, taken)
        shards = tuple(replace(own[old], operator=operator) for old, operator in pairs)
        names_of = {operator: old for old, operator in pairs}
        settings = {**taken.places.plain(), **told, "once": once, "as": names_of}
        sides.append(Side(survey.location, shards, {SETTING: json.dumps(settings, sort_keys=True)}))
        once = {
            id_: sorted({*seen, *_broadcast(image, names_of.get(id_))})
            for id_, seen in once.items()
        }
        size += sum(
            sizes.get(path, 0) for path in {path for shard in shards for path in shard.files}
        )
        for old, operator in pairs:
            gone = ("keyed", *anew[operator].loose) if operator in anew else ()
            kept[operator] |= {
                name: None for name, role in names.get(old, {}).items() if role not in gone
            }
    for operator in new:
        if operator in anew:
            loose = loose_names(choice, anew[operator])
            written = (
                *names_anew(choice, anew[operator]),
                *(name for own in loose.values() for name in own),
            )
            kept[operator] |= dict.fromkeys(written)
    first = sides[0]
    there = {
        "root": target,
        "image": "",
        "checked": True,
        **told,
        "once": {id_: [] for id_ in once},
    }
    return CompareImages(
        name=name,
        engine=layout.ENGINE,
        source=first.location,
        target=target,
        source_shards=first.shards,
        target_shards=tuple(ShardFiles(id_, "", 0, (layout.STAGED, *kept[id_])) for id_ in new),
        paths=(),
        settings=first.settings,
        size=size,
        target_settings={SETTING: json.dumps(there, sort_keys=True)},
        beside=tuple(sides[1:]),
    )


def _broadcast(image: Image, operator: str | None) -> set[str]:
    """The names of its broadcast states."""
    own = (o for o in metadata_of(image).operators if o.id.hex() == operator)
    subtasks = (subtask for o in own for subtask in o.subtasks or ())
    handles = (handle for subtask in subtasks for _, handle in handles_of(subtask))
    return {
        state.name
        for handle in handles
        for state in handle.states
        if state.mode == BROADCAST and state.offsets
    }


def _names(image: Image, taken: Taken) -> dict[str, dict[str, str]]:
    """Operator -> what its files are called in the target, each once: the role of what lies there.
    A file that holds several roles is kept: the one that is not written anew stands for it.
    """
    found: dict[str, dict[str, str]] = {}
    for reference in references(metadata_of(image)):
        if reference.operator in taken.operators:
            own = found.setdefault(reference.operator, {})
            for file in files_of(reference.stream):
                name = taken.name(file, reference.whole)
                own[name] = reference.role if own.get(name, "keyed") == "keyed" else own[name]
    return found
