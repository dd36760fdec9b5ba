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


def escape(text: str) -> str:
    """Return the text as it may stand between tags: names, notes, and messages of the user's and of
    storages.
    """
    shown = _NO_CHARACTER.sub(_escape, harmless(redact(text)))
    return html.escape(shown)


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def tag(element: str, *inner: str, **attributes: str | float) -> str:
    """Return an element; `inner` is markup, attributes are not. `class_` is `class`, `text_anchor`
    is `text-anchor`.
    """
    written = [_attribute(name, value) for name, value in attributes.items()]
    return f"<{element}{''.join(written)}>{''.join(inner)}</{element}>"


def percent(share: float) -> str:
    """Return a length in percent of the width."""
    return f"{share:.2f}".rstrip("0").rstrip(".") + "%"


def _attribute(name: str, value: str | float) -> str:
    text = escape(value) if isinstance(value, str) else f"{value:g}"
    return f' {name.rstrip("_").replace("_", "-")}="{text}"'
