"""Compare every page with what its commands print and its tables are made from, or rewrite it.

python main.py [PAGE ...]            compare; exit 1 and a diff where a page differs
python main.py --write [PAGE ...]    write what is true now
python main.py --without-java ...    leave the blocks that start a Spark as they are
python main.py --pictures            the pictures of `browse` and of a report alone
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blocks
import generated
import pictures
import recording
from readme_pages import ROOT, name_of, pages


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    java = "--without-java" not in arguments and blocks.has_java()
    named = [ROOT / word for word in arguments if not word.startswith("--")]
    differences: list[str] = []
    for page in named or ([] if "--pictures" in arguments else pages()):
        differences += check_page(page, write=write, java=java)
    if not named and "--pictures" not in arguments:
        differences += recording.check(write=write)
    if not named or "--pictures" in arguments:
        differences += pictures.check(write=write)
    if differences:
        print("\n".join(differences))
    elif not write:
        print("every page is what its commands print and its tables are made from")
    return 1 if differences else 0


def check_page(page: Path, *, write: bool, java: bool) -> Iterator[str]:
    """Yield what differs on one page, or write it and yield nothing."""
    text = page.read_text(encoding="utf-8")
    tables = generated.renewed(text)
    fresh = blocks.renewed(tables, java=java)
    if write:
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
        return
    name = name_of(page)
    yield from unified_diff(
        text.splitlines(), tables.splitlines(), name, "what it is made from", lineterm="", n=1
    )
    yield from blocks.compare(tables, fresh, name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
