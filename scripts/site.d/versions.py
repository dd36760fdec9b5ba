"""The versions of a site.

python versions.py SITE     writes SITE/index.html, which leads to the newest, and SITE/versions.json
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version


def main(site: Path) -> None:
    found = []
    for folder in site.iterdir():
        try:
            if (folder / "index.html").is_file():
                found.append(Version(folder.name))
        except InvalidVersion:
            continue
    found.sort(reverse=True)
    released = [version for version in found if not version.is_prerelease] or found
    (site / "versions.json").write_text(json.dumps([str(version) for version in found]) + "\n")
    newest = html.escape(str(released[0]))
    items = "".join(f'<li><a href="{each}/">{each}</a></li>' for each in map(str, found))
    (site / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>stateshift</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/">'
        f'<p><a href="{newest}/">stateshift {newest}</a></p><ul>{items}</ul></html>\n'
    )


main(Path(sys.argv[1]))
