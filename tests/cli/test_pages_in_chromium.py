"""The pages of the report, `rebalance`, `profile` and `live`, opened in a real Chromium: nothing is
asked of anybody, nothing overflows, everything can be read in light and dark, on paper, and reached
by keyboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.advise.rebalance.decision import decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.cli.views import rebalance_html, run_html
from stateshift.documents.run import RunFacts
from stateshift.report import FailureReport
from tests.advise.rebalance.grounds import GB, job, situation
from tests.cli.support import said
from tests.cli.test_rebalance_views import POLICY, decided
from tests.cli.test_rebalance_views import run as rebalanced
from tests.cli.test_render_html import JOB, REPORT, warm
from tests.live.cli.bins_group import PlayedBins
from tests.live.cli.live_group import Played
from tests.live.cli.test_bins import moved
from tests.live.cli.test_chains import FUNCTIONS
from tests.support.chromium import Tab, found, opened

pytestmark = [pytest.mark.row("W-31"), pytest.mark.slow]

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "spark-4.3.0"
WIDTHS = (360, 800, 1400)
CONTRAST_MIN = 4.5  # WCAG 2.2, 1.4.3
PAPER = 718  # A4 at 96 dots an inch, less its margins
LONG = "a/" + "long-name-without-a-blank" * 12
NAMES = ("report", "failed", "wave", "rebalance", "long", "profile", "chains", "bins")


def pages(folder: Path) -> dict[str, str]:
    """Return each page's text by its name: of what it shows, the rich and the awkward."""
    failure = FailureReport("StorageError", f"{LONG} cannot be read", "df -h /", 6, "copy-3")
    failed = replace(JOB, job=LONG, state="failed", failure=failure, notes=(f"note {LONG}",))
    wave = tuple(replace(JOB, job=f"job {number}") for number in range(5))
    loads = {LONG: 6.0, "pay ments": 4.0, "x" * 200: 1.0}
    jobs = [job(name, "west", load, bytes=int(load) * GB) for name, load in loads.items()]
    placed = situation({"west": 16, "east": 8}, jobs)
    played = Played(folder)
    played.run_batch()
    chains, bins = folder / "chains.html", folder / "bins.html"
    assert not said("live", "status", played.location, "--html", str(chains)).code
    workers = PlayedBins(folder)
    moved(workers, "--to", "east", "--bins", "0-2")
    for _ in range(5):
        workers.work()
    assert not said("live", "status", workers.location, "--html", str(bins)).code
    profile = folder / "profile.html"
    image = str(GOLDEN / "window-hdfs" / "checkpoint")
    assert not said("profile", image, "--html", str(profile)).code
    return {
        "report": run_html.page(RunFacts(warm(14), "w")),
        "failed": run_html.page(
            RunFacts(replace(REPORT, state="failed", jobs=(failed,), failure=failure), LONG)
        ),
        "wave": run_html.page(RunFacts(replace(REPORT, jobs=wave), "w")),
        "rebalance": rebalance_html.page(rebalanced(decided())),
        "long": rebalance_html.page(rebalanced(decide(placed, POLICY, Memory()))),
        "profile": profile.read_text("utf-8"),
        "chains": chains.read_text("utf-8"),
        "bins": bins.read_text("utf-8"),
    }


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if found() is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "rules.py").write_text(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, text in pages(folder).items():
            (folder / f"{name}.html").write_text(text, "utf-8")
    with opened(folder) as shown:
        shown.folder = folder
        yield shown


# Elements that reach beyond the window, unless they can be scrolled to within their own box.
OVERFLOW = """
[...document.body.querySelectorAll('*')].filter(each => {
  const box = each.getBoundingClientRect();
  const scroller = each.closest('.wide');
  const scrolls = scroller && scroller !== each && getComputedStyle(scroller).overflowX === 'auto';
  return box.width > 0 && !scrolls && (box.right > innerWidth + 1 || box.left < -1);
}).map(each => each.outerHTML.slice(0, 150))
  .concat(document.documentElement.scrollWidth > innerWidth ? ['the page scrolls sideways'] : [])
"""

# The contrast of each text with what is behind it: [ratio, text, colour, background].
CONTRASTS = """
(() => {
  const parts = colour => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return found.length > 3 ? found : [...found, 1];
  };
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3]));
  const light = colour => {
    const [r, g, b] = colour.map(value => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const painted = element => {  // the colours of the boxes around it, the innermost last
    const boxes = [];
    for (let each = element; each; each = each.parentElement) {
      boxes.unshift(parts(getComputedStyle(each).backgroundColor));
    }
    return boxes.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const behind = text => {  // of a text in a picture: the shapes below its middle
    const box = text.getBoundingClientRect();
    text.scrollIntoView({block: 'center', inline: 'center'});
    const now = text.getBoundingClientRect();
    const under = document.elementsFromPoint(now.x + now.width / 2, now.y + now.height / 2);
    let colour = painted(text.closest('svg').parentElement);
    for (const each of under.reverse()) {
      const style = getComputedStyle(each);
      if (!each.ownerSVGElement || each.matches('text, tspan') || style.fill === 'none') continue;
      const fill = parts(style.fill);
      colour = over([...fill.slice(0, 3), fill[3] * Number(style.fillOpacity)], colour);
    }
    return colour;
  };
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const words = walker.currentNode.data.trim();
    const box = element.getBoundingClientRect();
    if (!words || !box.width || element.closest('title, style')) continue;
    const style = getComputedStyle(element);
    const drawn = element.closest('svg');
    const haloed = drawn && style.stroke !== 'none' && style.paintOrder.startsWith('stroke');
    const ground = !drawn ? painted(element) : haloed ? parts(style.stroke) : behind(element);
    const ink = over(parts(drawn ? style.fill : style.color), ground);
    seen.push([ratio(ink, ground.slice(0, 3)), words, ink.join(), ground.join()]);
  }
  return seen;
})()
"""


# What a keyboard is needed for.
INTERACTIVE = """
[...document.querySelectorAll('a, button, summary, input, [tabindex], .wide')]
  .filter(each => !each.matches('.wide') || each.scrollWidth > each.clientWidth)
"""
OUTLINED = """
(() => { const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0; })()
"""


def faint(tab: Tab) -> list[list[object]]:
    """Return the texts that can hardly be told from what is behind them."""
    return [each for each in tab.run(CONTRASTS) if each[0] < CONTRAST_MIN]


def unreached(tab: Tab) -> list[int]:
    """Return the numbers of the elements that Tab does not reach, or that do not show it."""
    missing = list(range(tab.run(f"{INTERACTIVE}.length")))
    for _ in range(len(missing) + 1):
        tab.press_tab()
        at = tab.run(f"{INTERACTIVE}.indexOf(document.activeElement)")
        if at in missing and tab.run(OUTLINED):
            missing.remove(at)
    return missing


def test_the_probes_see_what_is_wrong(tab: Tab) -> None:
    file = tab.folder / "wrong.html"
    file.write_text(
        """<!DOCTYPE html><title>wrong</title><style>
        button { outline: none !important } @media print { i { display: none } }</style>
        <p style="color: #999; width: 2000px">faint and wide</p>
        <svg width="90" height="20"><rect width="90" height="20" fill="#777"></rect>
        <text y="15" fill="#888">drawn</text></svg>
        <button>unseen</button><div class="wide" tabindex="-1" style="width: 9em; overflow: auto">
        <b style="display: block; width: 90em">unreached</b></div><i>not on paper</i>
        <img src="http://127.0.0.1:1/a.png"><script>console.log("said"); throw Error("x")</script>""",
        "utf-8",
    )
    tab.look(360)
    tab.show(file)
    assert any("a.png" in each for each in tab.complaints)
    assert any("said" in each for each in tab.complaints)
    assert any("Error" in each for each in tab.complaints)
    assert len(tab.run(OVERFLOW)) == 2
    assert [each[1] for each in faint(tab)] == ["faint and wide", "drawn"]
    assert unreached(tab) == [0, 1]
    words = tab.run("document.body.innerText")
    tab.look(PAPER, media="print")
    assert tab.run("document.body.innerText") != words


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_of_anybody_and_nothing_overflows(tab: Tab, name: str) -> None:
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            tab.look(width, scheme)
            tab.show(tab.folder / f"{name}.html")
            assert tab.complaints == []
            assert tab.run(OVERFLOW) == [], (width, scheme)
            assert len(tab.run("document.body.innerText")) > 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_can_be_told_from_what_is_behind_it(tab: Tab, name: str, scheme: str) -> None:
    tab.look(800, scheme)
    tab.show(tab.folder / f"{name}.html")
    assert len(tab.run(CONTRASTS)) > 10
    assert faint(tab) == []
    is_dark = tab.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert is_dark is (scheme == "dark")


@pytest.mark.parametrize("name", NAMES)
def test_on_paper_is_all_that_is_on_the_screen(tab: Tab, name: str) -> None:
    tab.look(1400)
    tab.show(tab.folder / f"{name}.html")
    words = tab.run("document.body.innerText.split(/\\s+/).join(' ')")
    tab.look(PAPER, "dark", "print")
    assert tab.run("document.body.innerText.split(/\\s+/).join(' ')") == words
    assert tab.run(OVERFLOW) == []
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert faint(tab) == []
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF") and b"/Page" in pdf


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_scrolled_is_reached_by_keyboard_and_shows_it(tab: Tab, name: str) -> None:
    tab.look(360)
    tab.show(tab.folder / f"{name}.html")
    interactive = """[...document.querySelectorAll('a, button, summary, [tabindex], .wide')]
      .filter(each => !each.matches('.wide') || each.scrollWidth > each.clientWidth)"""
    count = tab.run(f"{interactive}.length")
    reached = set()
    for _ in range(count + 1):
        tab.press_tab()
        at = tab.run(f"{interactive}.indexOf(document.activeElement)")
        if at >= 0:
            style = "getComputedStyle(document.activeElement)"
            assert tab.run(
                f"{style}.outlineStyle !== 'none' && parseFloat({style}.outlineWidth) > 0"
            )
            reached.add(at)
    assert reached == set(range(count))
