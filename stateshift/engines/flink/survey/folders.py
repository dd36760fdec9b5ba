"""The folder of an image below a location, by names alone."""

from __future__ import annotations

from collections.abc import Iterable

from stateshift.engines.flink import layout
from stateshift.formats.marks import FOLDER
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo


def image_folder(storage: Storage) -> str | None:
    """Return where `_metadata` lies: here, or below, if one savepoint or one job's checkpoints do;
    of these, the newest.
    """
    if storage.stat(layout.METADATA) is not None:
        return ""
    below = images_below(storage.list())
    if len({_job_of(folder) for folder in below}) != 1:
        return None
    return max(below, key=lambda folder: (_number(folder) or 0, folder))


def _job_of(folder: str) -> str:
    """Return the folder of a checkpoint's job, or that of a savepoint."""
    return folder if _number(folder) is None else layout.folder_of(folder)


def images_below(files: Iterable[FileInfo]) -> list[str]:
    """Return the folders that hold an image, of the first two levels."""
    folders = []
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if folder and name == layout.METADATA and _may_hold_an_image(folder):
            folders.append(folder)
    return sorted(folders)


def _may_hold_an_image(folder: str) -> bool:
    return folder.count("/") <= 1 and FOLDER not in folder


def _number(folder: str) -> int | None:
    """Return the number of a checkpoint; None for another folder."""
    checkpoint = layout.CHECKPOINT.fullmatch(folder.rpartition("/")[2])
    return int(checkpoint[1]) if checkpoint else None
