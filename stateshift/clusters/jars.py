"""Checks of a jar by its zip directory: is the class there whose main is to be run?"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stateshift.errors import Complaint
from stateshift.suggestion import closest, suggest

_MANIFEST: Final = "META-INF/MANIFEST.MF"
_MAIN: Final = (b"main-class:", b"program-class:")  # Flink looks for either (PackagedProgram)
_MANIFEST_BYTES_MAX: Final = 1 << 20
_FLINKS_OWN: Final = "org.apache.flink."  # which a cluster has beside the jar, such as PythonDriver


def complaints_about(jar: Path, entry_class: str | None, pointer: str) -> Iterator[Complaint]:
    """Yield the faults of a jar: it is none, it lacks the class, or nothing names one."""
    try:
        with zipfile.ZipFile(jar) as opened:
            names = set(opened.namelist())
            manifest = b""
            if _MANIFEST in names and opened.getinfo(_MANIFEST).file_size <= _MANIFEST_BYTES_MAX:
                manifest = opened.read(_MANIFEST)
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        message = f"is no jar that can be read: {error}"
        yield Complaint(f"{pointer}/jar", message, str(jar), "a jar with the job")
        return
    place = f"{pointer}/entry_class"
    if any(name.endswith(".jar") for name in names):
        return  # the class may be in one of those
    if entry_class is None:
        if not any(line.strip().lower().startswith(_MAIN) for line in manifest.splitlines()):
            message = "is needed: the jar's manifest names no main class"
            yield Complaint(place, message, None, "the class in the jar whose main is run")
        return
    if entry_class.startswith(_FLINKS_OWN) or f"{entry_class.replace('.', '/')}.class" in names:
        return
    files = [name for name in names if name.endswith(".class")]
    classes = [file.removesuffix(".class").replace("/", ".") for file in files]
    simple = entry_class.rpartition(".")[2]
    same = sorted(name for name in classes if name.rpartition(".")[2] == simple)
    near = same[0] if same else closest(entry_class, classes)
    message = f"the jar has no class {entry_class!r}{suggest(near)}"
    yield Complaint(place, message, entry_class, near or "a class in the jar, with its package")
