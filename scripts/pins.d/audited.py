"""Says what pip-audit found in one list of packages; the exit code is 1 where a package has a known
hole.

python audited.py LIST FILE     FILE is pip-audit's JSON; it may be missing where nobody answered
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(name: str, file: Path) -> int:
    text = file.read_text("utf-8") if file.exists() else ""
    packages = json.loads(text)["dependencies"] if text.strip() else []
    asked = [package for package in packages if "skip_reason" not in package]
    if not asked:
        print(f"{name}: nobody could be asked")
        return 0
    holes = 0
    for package in asked:
        for hole in package["vulns"]:
            holes += 1
            mended = ", ".join(hole["fix_versions"]) or "no version yet"
            print(
                f"{name}: {package['name']} {package['version']}: {hole['id']}, mended in {mended}"
            )
    print(f"{name}: {len(asked)} of {len(packages)} packages asked for, {holes} known holes")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
