"""The packages of a list, out of this environment into another one, as links: nothing is downloaded.

python installed.py LIST ENVIRONMENT

A package that is not installed is left out: the list is for every platform. `pip check` in the
other environment says what is missing.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def link(package: str, target: Path) -> None:
    """Link all that a package has at the top of its `site-packages`."""
    try:
        installed = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return
    tops = {file.parts[0] for file in installed.files or ()}
    for top in sorted(tops - {"..", "__pycache__"}):
        place = target / top
        if not place.exists():
            place.symlink_to(Path(str(installed.locate_file(top))).resolve())


def main(list_file: Path, environment: Path) -> None:
    (target,) = environment.glob("lib/python3*/site-packages")
    for package in PIN.findall(list_file.read_text("utf-8")):
        link(package, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
