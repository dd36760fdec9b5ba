"""Whether the logs of file sources are of the source in whose folder they lie. Pure but for what is
refused.

    sources/0/5   names files of /in/orders, as all others of source 0 do
    sources/1/5   names files of /in/users

Nothing in a log says whose it is, but for the folders that it names. A log that names folders of
another source, and none of its own, was copied from there; where that one's log of the same number
does the reverse, the two were exchanged. Spark starts, and reads the files of that batch again.
Sources that read the same folders cannot be told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations

from stateshift.engines.spark.layout import deepest_above
from stateshift.engines.spark.small_files import Reading
from stateshift.specification.location import relation
from stateshift.survey import EmbeddedPath


@dataclass(frozen=True)
class SourceFolders:
    """The folders that one source's logs name, by the name of the log."""

    index: str
    folders: Mapping[str, frozenset[str]]

    def above_others(self, log: str) -> str:
        """Return the folder that all logs but this one read below; "" where there are no others."""
        counts = Counter(folder for folders in self.folders.values() for folder in folders)
        counts.subtract(self.folders.get(log, ()))
        return deepest_above(sorted(+counts))

    def path(self, log: str) -> str:
        return f"sources/{self.index}/{log}"


def folders_of(index: str, places: Iterable[EmbeddedPath]) -> SourceFolders:
    """Return the folders of a source by what its logs name."""
    folders: dict[str, set[str]] = {}
    for place in places:
        folders.setdefault(place.file.rpartition("/")[2], set()).add(place.path)
    return SourceFolders(index, {log: frozenset(each) for log, each in folders.items()})


def refuse_exchanged(reading: Reading, sources: Iterable[SourceFolders]) -> None:
    """Refuse logs that two sources have exchanged; warn of one that is a copy of another's."""
    for own, other in permutations(sources, 2):
        for log in own.folders:
            if not _is_of(own, other, log):
                continue
            path = own.path(log)
            fact = (
                f"{reading.path(path)} names files of {deepest_above(sorted(own.folders[log]))}, "
                f"which source {other.index} reads, and source {own.index} does not"
            )
            if _is_of(other, own, log):
                fact = f"{fact}: it is exchanged with {reading.path(other.path(log))}"
                reading.refuse(f"{fact}; Spark starts, and reads files twice", path)
            else:
                reading.warn(f"{fact}: it may be a copy of that source's", path)


def _is_of(own: SourceFolders, other: SourceFolders, log: str) -> bool:
    """Whether a log of `own` names folders of the other source alone."""
    above, above_other = own.above_others(log), other.above_others(log)
    folders = own.folders.get(log)
    if not folders or not above or not above_other or relation(above, above_other) != "apart":
        return False
    return all(_is_below(folder, above_other) for folder in folders) and not any(
        _is_below(folder, above) for folder in folders
    )


def _is_below(folder: str, above: str) -> bool:
    return relation(folder, above) in ("same", "inside")
