"""The steps of a repair: each file comes from the place that has it whole. Pure.

a copy of several files  one for each place that they come from
a commit, published      is written, if it was rebuilt
a comparison of a shard  goes by entries; byte for byte, if some of its files came from a copy,
                         for no one place holds all of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stateshift.plan import Phase
from stateshift.specification.transform import Repair
from stateshift.step import AnyStep, CompareImages, CopyFiles, StageFiles, TransformShard, WriteFile


def from_their_places(repair: Repair, phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Return the phases with every step that reads a file reading it where it is whole."""
    placed = []
    for phase in phases:
        steps: list[AnyStep] = []
        for step in phase.steps:
            match step:
                case CopyFiles() | StageFiles() if not step.names:
                    steps += _of_copy(repair, step)
                case CompareImages():
                    steps += _of_comparison(repair, step)
                case TransformShard() if step.inputs and step.inputs[0].path in repair.take:
                    steps.append(replace(step, source=repair.take[step.inputs[0].path]))
                case _:
                    steps.append(step)
        placed.append(replace(phase, steps=tuple(steps)))
    return tuple(placed)


def _of_copy(repair: Repair, step: CopyFiles | StageFiles) -> Iterator[AnyStep]:
    by_path = {item.path: item for item in step.items}
    rebuilt = [path for path in by_path if path in repair.rebuild]
    for number, (place, paths) in enumerate(_by_place(repair, by_path, step.source)):
        name = step.name if number == 0 else f"{step.name}-from-{number}"
        items = tuple(by_path[path] for path in paths)
        yield replace(step, name=name, source=place, items=items)
    for path in rebuilt:
        if isinstance(step, CopyFiles):  # else it is staged, and written later
            content = repair.rebuild[path].encode()
            yield WriteFile.of(f"{step.name}-{path}", step.target, path, content)


def _of_comparison(repair: Repair, step: CompareImages) -> Iterator[AnyStep]:
    whole, paths = [], list(step.paths)
    for shard in step.source_shards:
        if repair.take.keys().isdisjoint(shard.files):
            whole.append(shard)
        else:
            paths += shard.files
    if whole:
        yield replace(step, source_shards=tuple(whole), paths=())
    for number, (place, own) in enumerate(_by_place(repair, paths, step.source)):
        name = f"{step.name}-from-{number}" if whole or number else step.name
        yield replace(
            step, name=name, source=place, source_shards=(), paths=own, settings={}, size=0
        )


def _by_place(
    repair: Repair, paths: Iterable[str], source: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the places of these files, the source first, without those that are rebuilt."""
    by_place: dict[str, list[str]] = {source: []}
    for path in paths:
        if path not in repair.rebuild:
            by_place.setdefault(repair.take.get(path, source), []).append(path)
    yield from ((place, tuple(own)) for place, own in by_place.items() if own)
