"""The pages of the project lead where they say, and their tables are what the code is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import blocks, generated, pages, recording

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).resolve().parent.parent
PAGES = [pages.name_of(page) for page in pages.pages()]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r'<img [^>]*src="([^"]+)"')
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
OURS = re.compile(r"(?:stateshift|tests|scripts|configs)/[\w./*-]*")


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    broken = [target for target in links(name) if not leads_somewhere(name, target)]
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_every_path_of_ours_that_a_page_names_is_there(name: str) -> None:
    missing = [path for path in named_paths(name) if not exists(path)]
    assert missing == []


def test_a_page_with_a_broken_link_or_path_is_found(tmp_path: Path) -> None:
    assert not leads_somewhere("README.md", "stateshift/NOTHING.md")
    assert not leads_somewhere("README.md", "README.md#no-such-heading")
    assert leads_somewhere("README.md", "README.md#stateshift")
    assert not exists("stateshift/no/such/room.py")


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_made_from_the_code_as_it_is(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    assert generated.renewed(page) == page, "renew it with scripts/readme --write"


def test_every_option_of_a_cluster_is_of_a_kind_that_there_is_and_has_a_sentence() -> None:
    options = generated.options
    for table in (options.CLUSTER_OPTIONS, options.SUBMIT_OPTIONS, options.STOP_OPTIONS):
        for option in table:
            assert set(option.kinds) <= set(options.CLUSTER_KINDS)
            # every kind's `submit` takes an environment: it is a key of the spec
            assert option.about.endswith(".") or option.name == "environment"


def test_each_word_of_your_source_your_sink_names_a_test_that_is_there() -> None:
    page = ROOT / "stateshift" / "sources" / "README.md"
    chapter = page.read_text().partition("## Your source, your sink")[2].partition("\n## ")[0]
    named = re.findall(r'\]\(([^ ]+\.py) "(\w+)"\)', chapter)
    for path, name in named:
        assert f"def {name}(" in (page.parent / path).resolve().read_text(), name
    assert len(named) > 25


def test_the_readme_is_a_front_page() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160


def test_the_readme_names_every_command() -> None:
    words = [sys.executable, "-m", "stateshift", "--help"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+)  +\S", shown.split("Look:")[1], re.MULTILINE)
    listed = commands[: commands.index("json")] if "json" in commands else commands
    page = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in listed if f"`{name}`" not in page] == []


def test_every_page_of_a_room_is_reached_from_the_readme() -> None:
    linked = {
        (ROOT / target.split("#")[0]).resolve().relative_to(ROOT).as_posix()
        for target in links("README.md")
        if "://" not in target and target.split("#")[0]
    }
    rooms = {
        name for name in PAGES if name.endswith("README.md") and name.startswith("stateshift/")
    }
    assert rooms - linked == set()


@pytest.mark.long
def test_the_recording_shows_what_the_commands_print() -> None:
    shown = recording.text_of(recording.PICTURE.read_text("utf-8"))
    assert shown == recording.text_of(recording.drawn(recording.recorded()))


def links(name: str) -> Iterator[str]:
    text = FENCED.sub("", (ROOT / name).read_text("utf-8"))
    yield from LINK.findall(CODE.sub("", text).replace("[](", "[x]("))
    yield from IMAGE.findall(text)


def leads_somewhere(name: str, target: str) -> bool:
    if re.match(r"[a-z]+://|mailto:", target):
        return True
    path, _, anchor = target.partition("#")
    page = (ROOT / name).parent / path if path else ROOT / name
    if not page.exists():
        return False
    return not anchor or page.suffix != ".md" or anchor in anchors(page)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and GitLab make them."""
    text = FENCED.sub("", page.read_text("utf-8"))
    found: set[str] = set()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        repeated = sum(1 for one in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", one))
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return frozenset(found)


def named_paths(name: str) -> Iterator[str]:
    """Yield what stands between backticks on a page and is a path of ours."""
    text = FENCED.sub("", (ROOT / name).read_text("utf-8"))
    for code in CODE.findall(text):
        for word in code.split():
            path = word.removeprefix("./").rstrip(",.;:")
            if OURS.fullmatch(path):
                yield path


def exists(path: str) -> bool:
    if "*" in path:
        return any(ROOT.glob(path))
    return (ROOT / path).exists()


def test_the_shape_of_a_block_forgets_times_and_nothing_else() -> None:
    assert blocks.shape("took 0.24 s\n") == blocks.shape("took 13.5 s\n")
    assert blocks.shape("took 0.24 s\n") == blocks.shape("took 1 min 20 s\n")
    assert blocks.shape("in less than 1 s of it\n") == blocks.shape("in 3 s of it\n")
    assert blocks.shape("copied 4 files\n") != blocks.shape("copied 5 files\n")
