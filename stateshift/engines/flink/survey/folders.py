"""Where an image lies in a folder: what can be told without reading anything."""

from __future__ import annotations

from collections.abc import Iterable

from stateshift.engines.flink import layout
from stateshift.formats.marks import FOLDER
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo


def image_folder(storage: Storage) -> str | None:
    """Where `_metadata` lies: here, or below, if one savepoint or one job's checkpoints do; of
    these, the newest.
    """
    if storage.stat(layout.METADATA) is not None:
        return ""
    below = images_below(storage.list())
    jobs = {layout.folder_of(folder) if _number(folder) is not None else folder for folder in below}
    return max(below, key=lambda folder: (_number(folder) or 0, folder)) if len(jobs) == 1 else None


def images_below(files: Iterable[FileInfo]) -> list[str]:
    """The folders that hold an image, of the first two levels."""
    found = (
        layout.folder_of(file.path) for file in files if file.path.endswith(f"/{layout.METADATA}")
    )
    folders = []
    for folder in found:
        if folder.count("/") <= 1 and FOLDER not in folder:
            folders.append(folder)
    return sorted(folders)


def _number(folder: str) -> int | None:
    """Of a checkpoint."""
    found = layout.CHECKPOINT.fullmatch(folder.rpartition("/")[2])
    return int(found[1]) if found else None
