"""The licences of all packages of the environment that runs this, a line each. Fails if one has none."""

from __future__ import annotations

import sys
from importlib import metadata


def licence_of(package: metadata.Distribution) -> str:
    """Return the licence that a package's metadata names, in the newest way in which it does."""
    fields = package.metadata
    if fields["License-Expression"]:
        return str(fields["License-Expression"])
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in fields.get_all("Classifier") or []
        if classifier.startswith("License :: ") and classifier != "License :: OSI Approved"
    ]
    lines = (fields["License"] or "").strip().splitlines()
    return ", ".join(classifiers) or next(iter(lines), "")


def main() -> int:
    packages = {package.name.lower(): package for package in metadata.distributions()}
    missing = []
    for name, package in sorted(packages.items()):
        licence = licence_of(package)
        print(f"{name:24} {package.version:16} {licence}".rstrip())
        if not licence:
            missing.append(name)
    if missing:
        print(f"no licence in the metadata of {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
