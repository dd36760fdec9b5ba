"""Our own package as a zip, which `addPyFile` hands to every executor, also to those that come
later.

Executors get it always, whether they have an installation or not: it stands before that on their
path, so that both ends are the same code, not only the same version. It holds sources and, beside
each, its compiled form: what is imported from a zip is never kept compiled, and compiling a hundred
modules takes each Python worker a second.
"""

from __future__ import annotations

import importlib.util
import marshal
import struct
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

import stateshift

NAME = "stateshift.zip"


def write_package(folder: Path) -> Path:
    """Write the zip into this folder. Return its path."""
    root = Path(stateshift.__file__).parent
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in filter(_is_shipped, sorted(root.rglob("*"))):
            inside = str(file.relative_to(root.parent))
            archive.write(file, inside)
            if file.suffix == ".py":
                archive.writestr(_stamped(inside + "c"), _compiled(file))
    return path


def _is_shipped(file: Path) -> bool:
    """Whether a file belongs to the package, and was not compiled from one that does."""
    if "__pycache__" in file.parts or file.suffix == ".pyc":
        return False
    return file.is_file()


def _stamped(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _compiled(file: Path) -> bytes:
    """Return a module as Python keeps it compiled (here it mostly is already), marked as not to be
    checked against its source (PEP 552, flags 0b01).
    """
    code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    flags = struct.pack("<L", 0b01)
    return (
        importlib.util.MAGIC_NUMBER
        + flags
        + importlib.util.source_hash(file.read_bytes())
        + marshal.dumps(code)
    )
