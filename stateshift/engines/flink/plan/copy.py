"""What is brought to the target of a Flink plan: files as they are, parts of files, metadata of the
sources, and state that is rewritten. Pure.

    as_they_are(surveys, choice, deal)     the files that are copied whole, an image each, with
                                           their names there
    copies(surveys, wholes, choice, ...)   steps, an image each and then some
    bundles(files)                         files and their names, in worthwhile units
    rewritten_names(choice, rewritten), unkeyed_names  what the files of an operator are called that is written
                                           anew
    summary(rewritten), kept(number)            where is told what is in them; where a source's metadata
                                           is
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from stateshift.engines.bundles import bundled
from stateshift.engines.flink import layout
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.rewrite.choice import Choice, Dealing, Rewritten
from stateshift.engines.flink.rewrite.metadata import Taken
from stateshift.engines.flink.rewrite.transforms import CUT, RESCALE
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import Segment, files_of
from stateshift.formats.marks import FOLDER
from stateshift.step import AnyStep, CopyFiles, Elsewhere, TransformShard
from stateshift.survey import FileInfo, Image, Survey


class Named(NamedTuple):
    """A file, and what it is called in the target."""

    file: FileInfo
    name: str

    @property
    def size(self) -> int:
        return self.file.size


@dataclass(frozen=True, slots=True)
class Whole:
    """Of one image: files that are copied as they are; and of the others the parts that become a
    file of their own, (name, (start, size)).
    """

    location: str
    files: tuple[Named, ...]
    pieces: Mapping[str, tuple[tuple[str, tuple[int, int]], ...]]


def as_they_are(surveys: Sequence[Survey], choice: Choice, deal: Dealing) -> Iterator[Whole]:
    rewritten = deal.by_source
    for number, (survey, taken) in enumerate(zip(surveys, choice.taken, strict=True)):
        infos = {file.path: file for file in survey.files}
        wanted = _wanted(
            survey.images[0],
            taken,
            {own: one for (n, own), one in rewritten.items() if n == number},
        )
        files = []
        for path, parts in wanted.items():
            for name, part in parts:
                if part is None:
                    files.append(Named(infos[path], name))
        pieces = {
            path: tuple((n, p) for n, p in parts if p is not None) for path, parts in wanted.items()
        }
        # What keeps its name comes first, and stands together.
        files.sort(key=lambda one: one.file.path != one.name)
        yield Whole(
            survey.location, tuple(files), {path: own for path, own in pieces.items() if own}
        )


def copies(
    surveys: Sequence[Survey],
    wholes: Sequence[Whole],
    choice: Choice,
    target: str,
    deal: Dealing,
    brought: Container[tuple[str, str]],
) -> Iterator[AnyStep]:
    """But for what was `brought` before, by location and path."""
    yield from _as_they_are(surveys, wholes, target, brought)
    yield from _rewritten(surveys, choice, target, deal)


def _as_they_are(
    surveys: Sequence[Survey],
    wholes: Sequence[Whole],
    target: str,
    brought: Container[tuple[str, str]],
) -> Iterator[AnyStep]:
    for number, (survey, whole) in enumerate(zip(surveys, wholes, strict=True)):
        infos = {file.path: file for file in survey.files}
        left = [one for one in whole.files if (survey.location, one.file.path) not in brought]
        yield from _copied(f"copy/{number}", survey.location, target, left)
        for index, (path, pieces) in enumerate(whole.pieces.items()):
            yield TransformShard(
                name=f"copy/{number}-cut-{index}",
                transform=CUT,
                options={"pieces": [list(part) for _, part in pieces]},
                source=survey.location,
                inputs=(infos[path],),
                target=target,
                outputs=tuple(name for name, _ in pieces),
            )
        metadata = infos[layout.under(survey.images[0].path, layout.METADATA)]
        yield from _copied(
            f"copy/{number}-metadata", survey.location, target, [Named(metadata, kept(number))]
        )


def _wanted(
    image: Image, taken: Taken, rewritten: Mapping[str, Rewritten]
) -> dict[str, dict[tuple[str, tuple[int, int] | None], None]]:
    """Path in the source -> what becomes of it: (name in the target, the piece of it or all); but
    for what is rewritten.
    """
    places, found = places_of(image), dict[str, dict[tuple[str, tuple[int, int] | None], None]]()
    for reference in references(metadata_of(image)):
        one = rewritten.get(reference.operator)
        if reference.operator not in taken.operators or (
            one is not None and reference.role in ("keyed", *one.unkeyed)
        ):
            continue
        for file in files_of(reference.stream):
            path = places.path_of(file)
            assert path is not None, "what lies elsewhere is refused before"
            part = (
                (file.start, file.size)
                if isinstance(file, Segment) and not reference.whole
                else None
            )
            found.setdefault(path, {})[taken.name(file, reference.whole), part] = None
    return found


def _rewritten(
    surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> Iterator[TransformShard]:
    """An operator's state for other subtasks, or that of several images' as one: a step each."""
    for one in deal.rewritten:
        origins, inputs = [], []
        for number, operator in one.sources:
            survey, places = surveys[number], choice.taken[number].places
            image, infos = survey.images[0], {file.path: file for file in survey.files}
            paths = _paths_of(image, operator, ("keyed", *one.unkeyed))
            origins.append({**places.plain(), "operator": operator, "paths": list(paths)})
            files = (
                infos[layout.under(image.path, layout.METADATA)],
                *(infos[path] for path in paths),
            )
            inputs.append(Elsewhere(survey.location, files))
        names, unkeyed = rewritten_names(choice, one), unkeyed_names(choice, one)
        yield TransformShard(
            name=f"copy/anew-{one.operator}",
            transform=RESCALE,
            options={
                "origins": origins,
                "operator": one.operator,
                "parallelism": one.parallelism,
                "max_parallelism": one.max_parallelism,
                "names": list(names),
                "loose": unkeyed,
            },
            source=inputs[0].location,
            inputs=inputs[0].files,
            target=target,
            outputs=(*names, *chain.from_iterable(unkeyed.values()), summary(one)),
            beside=tuple(inputs[1:]),
        )


def _paths_of(image: Image, operator: str, roles: Sequence[str]) -> tuple[str, ...]:
    places = places_of(image)
    paths: dict[str, None] = {}
    for reference in references(metadata_of(image)):
        if reference.operator != operator or reference.role not in roles:
            continue
        for file in files_of(reference.stream):
            path = places.path_of(file)
            if path is not None:
                paths[path] = None
    return tuple(paths)


def rewritten_names(choice: Choice, one: Rewritten, role: str = "") -> tuple[str, ...]:
    """Made of where its state comes from: of whatever is run again, they are the same."""
    places = (choice.taken[number].places for number, _ in one.sources)
    known = " ".join(
        (
            *(f"{place.root}/{place.image}" for place in places),
            one.operator,
            str(one.parallelism),
            role,
        )
    )
    return tuple(
        str(uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {subtask}"))
        for subtask in range(one.parallelism)
    )


def unkeyed_names(choice: Choice, one: Rewritten) -> dict[str, list[str]]:
    return {role: list(rewritten_names(choice, one, role)) for role in one.unkeyed}


def summary(one: Rewritten) -> str:
    return f"{FOLDER}/anew-{one.operator}.json"


def _copied(name: str, source: str, target: str, files: Iterable[Named]) -> Iterator[CopyFiles]:
    for number, (items, names) in enumerate(bundles(files)):
        same = all(item.path == given for item, given in zip(items, names, strict=True))
        yield CopyFiles(f"{name}-{number}", source, target, items, names=() if same else names)


def bundles(files: Iterable[Named]) -> Iterator[tuple[tuple[FileInfo, ...], tuple[str, ...]]]:
    for some in bundled(files):
        yield tuple(one.file for one in some), tuple(one.name for one in some)


def kept(number: int) -> str:
    """Where the target keeps what the metadata of an image was."""
    return f"{FOLDER}/source-{number}{layout.METADATA}"
