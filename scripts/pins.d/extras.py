"""What scripts/pins needs to know of pyproject.toml and of a downloaded file.

python extras.py EXTRA                 the requirements of that extra, one a line
python extras.py --file NAME==V FILE   the requirement with the file's digest
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def requirements_of(extra: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed: list[str] = project["optional-dependencies"][extra]
    return listed


def pinned(requirement: str, file: Path) -> str:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{requirement} \\\n    --hash=sha256:{digest}"


if __name__ == "__main__":
    if sys.argv[1] == "--file":
        print(pinned(sys.argv[2], Path(sys.argv[3])))
    else:
        print("\n".join(requirements_of(sys.argv[1])))
