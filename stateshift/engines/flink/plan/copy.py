"""The steps that bring state to the target of a Flink plan: files as they are, parts of files, the
metadata of the sources, and state that is rewritten. Pure.

A checkpoint's files never change once it is completed, and an incremental one names those of
earlier ones again: a round may copy all of the last checkpoint, and the next one has little that is
new. The metadata of the checkpoint that the job ends with says which files the image is made of;
what rounds have copied beside is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from stateshift.engines.bundles import bundle_items
from stateshift.engines.flink import layout
from stateshift.engines.flink.image import flink_facts, metadata_of, places_of
from stateshift.engines.flink.rewrite.choice import Choice
from stateshift.engines.flink.rewrite.move import Move, Rewritten
from stateshift.engines.flink.rewrite.transforms import CUT, RESCALE
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import Segment, files_of
from stateshift.formats.marks import FOLDER
from stateshift.plain import JsonObject
from stateshift.specification.transform import Rescale, find_change
from stateshift.step import AnyStep, BringFiles, CompareImages, CopyFiles, Elsewhere, TransformShard
from stateshift.survey import Facts, FileInfo, Image, Survey


class Named(NamedTuple):
    """A file, and what it is called in the target."""

    file: FileInfo
    name: str

    @property
    def size(self) -> int:
        return self.file.size


Part = tuple[int, int]  # where a piece of a file begins, and its size
Pieces = tuple[tuple[str, Part], ...]  # by their names in the target


Parts = dict[tuple[str, Part | None], None]  # names in the target; None: all of the file


@dataclass(frozen=True, slots=True)
class Whole:
    """Files of one image that are copied as they are; and, by their paths, those whose parts become
    files of their own.
    """

    location: str
    files: tuple[Named, ...]
    pieces: Mapping[str, Pieces]

    def files_not_in(self, copied: Container[tuple[str, str]]) -> list[Named]:
        """Return the files that are not copied yet; `copied` has locations and paths."""
        return [file for file in self.files if (self.location, file.file.path) not in copied]

    @classmethod
    def of(cls, survey: Survey, wanted: Mapping[str, Parts]) -> Whole:
        infos = {file.path: file for file in survey.files}
        files: list[Named] = []
        pieces: dict[str, Pieces] = {}
        for path, parts in wanted.items():
            files += [Named(infos[path], name) for name, part in parts if part is None]
            own = tuple((name, part) for name, part in parts if part is not None)
            if own:
                pieces[path] = own
        files.sort(key=lambda named: named.file.path != named.name)
        return cls(survey.location, tuple(files), pieces)


def as_they_are(move: Move) -> Iterator[Whole]:
    """Yield the copies of each image."""
    for number, survey in enumerate(move.surveys):
        yield Whole.of(survey, _wanted(move, number))


def copies(
    move: Move, wholes: Sequence[Whole], copied_before: Container[tuple[str, str]]
) -> Iterator[AnyStep]:
    """Yield the steps, but for what was `copied_before`, by location and path."""
    for number, whole in enumerate(wholes):
        yield from _copies_of_image(move, number, whole, copied_before)
    for rewritten in move.redistribution.rewritten:
        yield _rewrite(move, rewritten)


def _copies_of_image(
    move: Move, number: int, whole: Whole, copied_before: Container[tuple[str, str]]
) -> Iterator[AnyStep]:
    survey = move.surveys[number]
    infos = {file.path: file for file in survey.files}
    left = whole.files_not_in(copied_before)
    yield from _copied(f"copy/{number}", survey.location, move.target, left)
    for index, (path, pieces) in enumerate(whole.pieces.items()):
        yield TransformShard(
            name=f"copy/{number}-cut-{index}",
            transform=CUT,
            options={"pieces": [list(part) for _, part in pieces]},
            source=survey.location,
            inputs=(infos[path],),
            target=move.target,
            outputs=tuple(name for name, _ in pieces),
        )
    if move.prunes:  # small state is in the metadata itself: no copy of it stays beside
        return
    metadata = Named(
        infos[layout.under(survey.images[0].path, layout.METADATA)], metadata_copy(number)
    )
    yield from _copied(f"copy/{number}-metadata", survey.location, move.target, [metadata])


def _wanted(move: Move, number: int) -> dict[str, Parts]:
    image, taken = move.surveys[number].images[0], move.choice.taken[number]
    places = places_of(image)
    wanted: dict[str, Parts] = {}
    for reference in references(metadata_of(image)):
        operator = reference.operator
        is_rewritten = move.is_rewritten(number, operator, reference.role)
        if is_rewritten or operator not in taken.operators:
            continue
        for file in files_of(reference.stream):
            path = places.path_of(file)
            assert path is not None, "what lies elsewhere is refused before"
            name = taken.name(file, reference.whole)
            part = None  # all of it
            if isinstance(file, Segment) and not reference.whole:
                part = file.start, file.size
            wanted.setdefault(path, {})[name, part] = None
    return wanted


def _rewrite(move: Move, rewritten: Rewritten) -> TransformShard:
    origins, inputs = [], []
    jars: dict[str, str] = {}
    for number, operator in rewritten.sources:
        survey, places = move.surveys[number], move.choice.taken[number].places
        image = survey.images[0]
        jars.update(flink_facts(image).jars.get(operator, {}))
        infos = {file.path: file for file in survey.files}
        paths = paths_of(image, operator, rewritten.roles)
        metadata = layout.under(image.path, layout.METADATA)
        origins.append({**places.plain(), "operator": operator, "paths": list(paths)})
        inputs.append(Elsewhere(survey.location, tuple(infos[path] for path in (metadata, *paths))))
    names = rewritten_names(move.choice, rewritten)
    unkeyed = unkeyed_names(move.choice, rewritten)
    by_classes: JsonObject = {}
    rescale = find_change(move.job.transform, Rescale)
    if jars and rescale is not None:
        by_classes = {"classes": jars, "flink": rescale.flink}
    return TransformShard(
        name=f"copy/anew-{rewritten.operator}",
        transform=RESCALE,
        options={
            "origins": origins,
            "operator": rewritten.operator,
            "parallelism": rewritten.parallelism,
            "max_parallelism": rewritten.max_parallelism,
            "names": list(names),
            "loose": unkeyed,
            **({} if rewritten.edit is None else {"edit": rewritten.edit.plain()}),
            **by_classes,
        },
        source=inputs[0].location,
        inputs=inputs[0].files,
        target=move.target,
        outputs=(*names, *chain.from_iterable(unkeyed.values()), summary(rewritten)),
        beside=tuple(inputs[1:]),
    )


def paths_of(image: Image, operator: str, roles: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the files that an operator's state of these roles is in."""
    places = places_of(image)
    paths: dict[str, None] = {}
    for reference in references(metadata_of(image)):
        if reference.operator == operator and reference.role in roles:
            named = map(places.path_of, files_of(reference.stream))
            paths.update((path, None) for path in named if path is not None)
    return tuple(paths)


def rewritten_names(choice: Choice, rewritten: Rewritten, role: str = "") -> tuple[str, ...]:
    """Return an operator's new file names, which a plan that is made again gives as well."""
    origins = []
    for number, _ in rewritten.sources:
        places = choice.taken[number].places
        origins.append(f"{places.root}/{places.image}")
    known = " ".join((*origins, rewritten.operator, str(rewritten.parallelism), role))
    return tuple(
        str(uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {subtask}"))
        for subtask in range(rewritten.parallelism)
    )


def unkeyed_names(choice: Choice, rewritten: Rewritten) -> dict[str, list[str]]:
    """Return the names of the new files of state that belongs to no key, by its roles."""
    return {role: list(rewritten_names(choice, rewritten, role)) for role in rewritten.unkeyed}


def summary(rewritten: Rewritten) -> str:
    """Return the file of the target that lists the content of an operator's new files."""
    return f"{FOLDER}/anew-{rewritten.operator}.json"


def _copied(name: str, source: str, target: str, files: Iterable[Named]) -> Iterator[CopyFiles]:
    for number, (items, names) in enumerate(bundles(files)):
        same = all(item.path == given for item, given in zip(items, names, strict=True))
        yield CopyFiles(f"{name}-{number}", source, target, items, names=() if same else names)


def bundles(files: Iterable[Named]) -> Iterator[tuple[tuple[FileInfo, ...], tuple[str, ...]]]:
    """Yield files and their names, in worthwhile units."""
    for bundle in bundle_items(files):
        yield tuple(named.file for named in bundle), tuple(named.name for named in bundle)


def metadata_copy(number: int) -> str:
    """Return the file of the target that keeps the metadata of an image."""
    return f"{FOLDER}/source-{number}{layout.METADATA}"


Names = Mapping[tuple[str, str], str]  # by location and path, what a file is called in the target


def bare(facts: Facts) -> Facts:
    """Return facts without stamps and outer times: a plan says what is done, not with which one."""
    source = _bare(facts.source)
    target = source if facts.target is facts.source else _bare(facts.target)
    others = tuple(_bare(survey) for survey in facts.others)
    return replace(facts, source=source, target=target, others=others)


def _bare(survey: Survey) -> Survey:
    inside = tuple(f"{image.path}/" if image.path else "" for image in survey.images) or ("",)
    files = []
    for file in survey.files:
        times = (file.modified,) if file.path.startswith(inside) else ()
        files.append(FileInfo(file.path, file.size, *times))
    return replace(survey, files=tuple(files))


def there_already(facts: Facts, wanted: Names) -> frozenset[tuple[str, str]]:
    """Return the wanted files that rounds have copied under the name that they are to have."""
    return frozenset(key for key, file in facts.brought.items() if wanted.get(key) == file.name)


def names_of(wholes: Iterable[Whole]) -> dict[tuple[str, str], str]:
    """Return the name at the target of each file that is copied whole, by its location and path."""
    names = {}
    for whole in wholes:
        for file, name in whole.files:
            names[(whole.location, file.path)] = name
    return names


def round_of(move: Move, wholes: Sequence[Whole]) -> Iterator[BringFiles]:
    """Yield steps for the last checkpoint's new files; segments that may grow wait for the end."""
    at_target = there_already(move.facts, names_of(wholes))
    for number, whole in enumerate(wholes):
        left = whole.files_not_in(at_target)
        for bundle, (items, names) in enumerate(bundles(left)):
            yield BringFiles(
                f"copy/{number}-{bundle}",
                whole.location,
                move.target,
                items,
                read_back=move.job.verify != "none",
                names=names,
            )


def compare_copies(copied: Sequence[AnyStep]) -> Iterator[CompareImages]:
    """Yield comparisons of what was copied now, byte for byte: as rounds have compared the rest."""
    copies = [step for step in copied if isinstance(step, CopyFiles)]
    for number, step in enumerate(copies):
        yield CompareImages.of_copy(f"compare/{number}", layout.ENGINE, step)
