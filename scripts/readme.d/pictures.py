"""Pictures of what a person sees: a screen of `browse`, and the page of a report.

    stateshift/engines/spark/browse.svg   the screen, by textual: its text, as the program shows it
    stateshift/migration/report.webp      the page in Chromium; a chunk behind the picture has the
                                          digest of the HTML that it shows

A picture has aged when its text, or the page that it was taken of, is another now. To take the
second one anew needs Chromium; to see that it has aged does not.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import struct
import tempfile
from collections.abc import Iterator
from difflib import unified_diff
from functools import partial
from html import unescape
from pathlib import Path

import blocks
from readme_pages import ROOT

SCREEN = ROOT / "stateshift" / "engines" / "spark" / "browse.svg"
REPORT = ROOT / "stateshift" / "migration" / "report.webp"
SIZE = (96, 20)  # columns and lines of the screen
WIDTH = 800  # of the page, in its own pixels
BYTES_MAX = 60_000
ABOVE = "document.querySelector('h3').getBoundingClientRect().top"  # its timeline, and no table
CHUNK = b"page" + struct.pack("<I", 64)  # of RIFF; who draws the picture passes over it


def check(*, write: bool) -> Iterator[str]:
    """Yield why a picture has aged, or make it anew."""
    known = SCREEN.read_text("utf-8") if SCREEN.exists() else ""
    fresh = screen()
    differences = list(
        unified_diff(lines_of(known), lines_of(fresh), "browse.svg", "the screen", lineterm="", n=1)
    )
    if write and differences:
        SCREEN.write_text(fresh, "utf-8")
    page = report()
    has_aged = not REPORT.exists() or digest_in(REPORT.read_bytes()) != digest_of(page)
    if write and has_aged:
        REPORT.write_bytes(photographed(page))
    if not write:
        yield from differences
        if has_aged:
            yield f"{REPORT.name} shows a page that is another now: scripts/readme --write"


def screen() -> str:
    """Return the first screen of `browse` of a checkpoint that Spark wrote."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        blocks.furnish(folder)
        picture = asyncio.run(_browsed(str(folder / "orders")))
        # Its name is shorter, and would be stretched to the length of the other.
        stretched = re.compile(rf' textLength="[^"]*"(?=[^>]*>[^<]*{re.escape(str(folder))})')
        picture = stretched.sub("", picture).replace(str(folder), blocks.HOME)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # of another server
    return re.sub(r"terminal-\d+", "browse", picture)


async def _browsed(place: str) -> str:
    from stateshift.cli.browse.app import Browser
    from stateshift.cli.browse.places import first_page
    from stateshift.migration import real_adapters

    given, opens = real_adapters(), partial(first_page, [place])
    app = Browser(opens, opens(given), given)
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(600):
            await pilot.pause(0.05)
            picture = app.export_screenshot(title="stateshift browse orders")
            shown = "\n".join(lines_of(picture))
            if "6 parts" in shown and "Quit" in shown:
                return picture
    raise AssertionError("browse has not shown the checkpoint")


def lines_of(picture: str) -> list[str]:
    """Return the lines of a screen, however they are cut into parts."""
    lines: dict[str, str] = {}
    for y, text in re.findall(r'<text [^>]* y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        lines[y] = lines.get(y, "") + unescape(re.sub(r"<[^>]+>", "", text)).replace("\xa0", " ")
    return [line.rstrip() for line in lines.values()]


def report() -> str:
    """Return the page of a warm move, of values that stay the same."""
    from stateshift import __version__
    from stateshift.cli.views.run_html import page
    from stateshift.documents.run import RunFacts
    from tests.cli.test_render_html import warm

    text = page(RunFacts(warm(4), "orders-run"))
    return text.replace(f"stateshift {__version__}", "stateshift")  # a release changes no picture


def photographed(page: str) -> bytes:
    """Return a picture of the page, with the digest of what it shows."""
    from tests.support.chromium import found, opened

    if found() is None:
        raise SystemExit(f"{REPORT.name} is made by Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        (folder / "page.html").write_text(page, "utf-8")
        with opened(folder) as tab:
            tab.look(WIDTH)
            tab.show(folder / "page.html")
            height = int(tab.run(ABOVE))
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
            shown = {"clip": clip, "captureBeyondViewport": True, "format": "webp", "quality": 70}
            taken = tab.ask("Page.captureScreenshot", **shown)
    content = base64.b64decode(taken["data"])[8:] + CHUNK + digest_of(page).encode()
    image = b"RIFF" + struct.pack("<I", len(content)) + content
    assert content.startswith(b"WEBP") and len(image) <= BYTES_MAX, f"{len(image):,} bytes"
    return image


def digest_of(page: str) -> str:
    return hashlib.sha256(page.encode()).hexdigest()


def digest_in(image: bytes) -> str:
    """Return the digest that a picture has of its page; nothing if it has none."""
    return image.rpartition(CHUNK)[2].decode("ascii", "replace")
