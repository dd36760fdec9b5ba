"""The project's pages, as Sphinx reads them.

python pages.py FOLDER     copies each page to its own place below FOLDER, with links that hold there
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The order in which a reader meets them; what is in none of these is with the developers.
GROUPS = {
    "Operate": (
        *("stateshift/migration", "stateshift/standby", "configs", "configs/examples"),
        *(
            "stateshift/clusters",
            "stateshift/clusters/",
            "stateshift/storage",
            "stateshift/sources",
        ),
        *("stateshift/check", "stateshift/table", "stateshift/fleet", "stateshift/job"),
        *("configs/deploy", "stateshift/advise", "stateshift/advise/", "stateshift/dataflow"),
        *("stateshift/live", "stateshift/live/"),
    ),
    "Look up": (
        "stateshift/cli",
        "stateshift/api",
        "configs/outputs",
        "CHANGELOG",
        "stateshift/COMPARED",
        "stateshift/SECURITY",
    ),
    "Engines": ("stateshift/engines/",),
    "Measured": (
        "scripts/bench",
        "scripts/bench/",
        "tests/matrix",
        "tests/damage",
        "tests/versions",
    ),
    "Develop": ("",),
}
LINK = re.compile(r"\]\((?P<to>[^)#\s]*)(?P<anchor>#[^)\s]*)?")
PICTURE = re.compile(r'<img src="(?P<to>[^"]+)" alt="(?P<alt>[^"]*)"[^>]*>')
CODE = re.compile(r"^ *```[\s\S]*?^ *```|`[^`\n]+`", re.MULTILINE)


def main(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = {name for name in listed.stdout.split("\0") if name}
    pages = sorted(name for name in files if name.endswith(".md") and "/golden/" not in name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for page in pages:
        place = target / named(page)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = with_links((ROOT / page).read_text("utf-8"), page, files, project["urls"]["Source"])
        for picture in PICTURE.finditer(text):
            shown = target / os.path.dirname(page) / picture["to"]
            shown.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / os.path.dirname(page) / picture["to"], shown)
        text = PICTURE.sub(r"![\g<alt>](\g<to>)", text)
        if page == "README.md":
            text += contents([name for name in pages if name != page])
        place.write_text(text, "utf-8")


def named(page: str) -> str:
    """Return the name that a page has in the site."""
    return re.sub(r"\bREADME\.md$", "index.md", page)


def with_links(text: str, page: str, files: set[str], repository: str) -> str:
    """Return a page whose links to what is no page lead to the repository; code stays as it is."""
    folders = {os.path.dirname(name) for name in files}

    def link(found: re.Match[str]) -> str:
        to = found["to"]
        if not to or re.match(r"[a-z]+:", to):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), to))
        anchor = found["anchor"] or ""
        if path in folders and f"{path}/README.md" in files:
            return f"](/{path}/index.md{anchor}"
        if path.endswith(".md") or not (path in files or path in folders):
            return f"](/{named(path)}{anchor}"
        kind = "tree" if path in folders else "blob"
        return f"]({repository}/{kind}/main/{path}{anchor}"

    parts, last = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(link, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join((*parts, LINK.sub(link, text[last:])))


def contents(pages: list[str]) -> str:
    """Return the tables of contents that the front page ends with."""
    left, told = list(pages), ""
    for title, places in GROUPS.items():
        own: list[str] = []
        for place in places:
            own += [page for page in left if stands_at(page, place) and page not in own]
        left = [page for page in left if page not in own]
        lines = "\n".join(f"/{named(page)}" for page in own)
        told += f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n{lines}\n```\n"
    return told


def stands_at(page: str, place: str) -> bool:
    """Whether this is the page of a place, or lies below it where the place ends with a slash."""
    if place == "" or place.endswith("/"):
        return page.startswith(place)
    return page in (f"{place}.md", f"{place}/README.md")


main(Path(sys.argv[1]))
