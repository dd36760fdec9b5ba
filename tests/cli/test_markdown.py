"""Results as Markdown, read back by a parser of it: what is shown is what the plain text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from stateshift.cli.views.text import Gap, Line, TextTable, markdown_text, pairs, plain_text
from tests.acceptance.support import ROOT, stateshift

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
HOSTILE = [
    "[a](http://evil)",
    "![a](http://evil/x.png)",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "`rm -rf`",
    "a|b",
    "**bold** and __bold__ and ~~gone~~",
    "# a heading",
    "- an item",
    "+ an item",
    "\\[x\\]",
    "$x^2$",
    "line\nbreak\x1b[31m",
    "---",
    "1. one",
]


def shown(markdown: str) -> tuple[list[str], set[str]]:
    """Return the texts of a page, and the kinds of its elements."""
    texts, kinds = [], set()
    for token in PARSER.parse(markdown):
        kinds.add(token.type)
        children = token.children or []
        kinds |= {child.type for child in children}
        if token.type == "inline":
            texts.append("".join(child.content for child in children))
    return texts, kinds


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_as_it_is_in_each_place(name: str) -> None:
    blocks = [
        Line(name, "strong"),
        Gap(),
        Line(name, indent=2),
        Line(name),
        pairs(("name", name)),
        TextTable(("name", ">rows"), ((name, "1"),)),
    ]
    texts, kinds = shown(markdown_text(blocks))
    (plain, *_) = plain_text([Line(name.replace("\n", " "))]).splitlines()
    told = [re.sub(r"\s+", " ", text.replace("\\n", " ")) for text in texts]
    assert told.count(plain.strip()) == 5
    assert not kinds & {"link_open", "image", "html_block", "em_open", "code_block", "s_open", "hr"}
    assert "hardbreak" not in kinds


def test_a_mention_mentions_nobody() -> None:
    text = markdown_text([Line("first"), Line("from @someone about #12", indent=2)])
    assert "@someone" not in text
    assert "#12" not in text


def test_a_command_is_code_and_may_hold_backticks() -> None:
    text = markdown_text([Line("first"), Line("stateshift fork 'a``b' --to c", indent=2)])
    (_, code) = [token for token in PARSER.parse(text) if token.type == "inline"]
    assert [child.type for child in code.children or []] == ["code_inline"]
    assert code.content == "``` stateshift fork 'a``b' --to c ```"


def test_commands_print_it_and_not_beside_json(tmp_path: Path) -> None:
    images = tuple(
        ROOT / each
        for each in ("tests/golden/check/window/checkpoint", "tests/golden/check/dedup/checkpoint")
    )
    ran = stateshift("diff", *images, "--format", "markdown", cwd=tmp_path, code=5)
    texts, kinds = shown(ran.out)
    assert texts[0].startswith("different: ")
    assert "table_open" in kinds
    refused = stateshift("diff", *images, "--format", "markdown", "--json", cwd=tmp_path, code=2)
    assert "leave out --json" in refused.out
    refused = stateshift("diff", *images, "--format", "html", cwd=tmp_path, code=2)
    assert "one of text, markdown" in refused.err
