"""Elements of a page as text, HTML's and SVG's alike: well-formed as XML, and nothing that was
said becomes one.
"""

from __future__ import annotations

import html
import re

from stateshift.cli.views.text import harmless
from stateshift.storage.locations import redact

# Halves of characters (names of files that are no text) and what no XML may hold.
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")


def said(text: str) -> str:
    """The text as it may stand between tags: names, notes, and messages of the user's and of
    storages.
    """
    shown = _NO_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", harmless(redact(text)))
    return html.escape(shown)


def tag(element: str, *inner: str, **attributes: str | float) -> str:
    """An element; `inner` is markup, attributes are not. `class_` is `class`, `text_anchor` is
    `text-anchor`.
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
    )
    return f"<{element}{told}>{''.join(inner)}</{element}>"


def percent(share: float) -> str:
    return f"{share:.2f}".rstrip("0").rstrip(".") + "%"


def _attribute(value: str | float) -> str:
    return said(value) if isinstance(value, str) else f"{value:g}"
