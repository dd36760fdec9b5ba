"""Files inside a checkpoint that no Spark wrote: names that are on no page of its layout. Pure.

They disturb no job: it neither reads nor removes them. Whoever put them there may miss them after a
move, or does not know that they are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stateshift.formats.spark.names import classify
from stateshift.survey import FileInfo, Finding, Image

# So many folders with strangers are named one by one.
FOLDERS_MAX = 10

_OWN = ("offsets", "commits", "sources", "state")


def strangers(files: Iterable[FileInfo], image: Image) -> Iterator[Finding]:
    """Yield a note for each folder with files that are not Spark's."""
    start = f"{image.path}/" if image.path else ""
    folders: dict[str, list[str]] = {}
    for info in files:
        if not info.path.startswith(start):
            continue
        path = info.path.removeprefix(start)
        if _is_stranger(path):
            folders.setdefault(_folder(path), []).append(info.path)
    for folder in sorted(folders)[:FOLDERS_MAX]:
        yield _note(folder, sorted(folders[folder]))
    if len(folders) > FOLDERS_MAX:
        count = len(folders) - FOLDERS_MAX
        yield Finding("note", f"{count} more folders hold files that no Spark wrote")


def _is_stranger(path: str) -> bool:
    is_hidden = "/." in f"/{path}"
    return not is_hidden and classify(path).area == "other"


def _folder(path: str) -> str:
    """Return what groups the files: their folder inside Spark's own, else the one at the top."""
    directory = path.rpartition("/")[0]
    top = path.partition("/")[0]
    return directory if top in _OWN or not directory else top


def _note(folder: str, paths: list[str]) -> Finding:
    where = f"{folder}/" if folder else "the checkpoint's own folder"
    if len(paths) == 1:
        fact = f"{paths[0]} is no file of Spark's: no job reads it"
    else:
        fact = (
            f"{len(paths)} files in {where} are no files of Spark's, {paths[0]} among them: no "
            "job reads them"
        )
    return Finding("note", fact, path=paths[0])
