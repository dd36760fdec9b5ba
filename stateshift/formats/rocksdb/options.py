"""RocksDB's OPTIONS file, as far as it says what a database has.

    [Version] | [DBOptions] | [CFOptions "NAME"] | [TableOptions/BlockBasedTable "NAME"]
      key=value                                     the lines of a section
      # a comment

In a name, a backslash stands before what would end it. The file has no checksum, and RocksDB opens
a database without it: what it says can only be held against what the MANIFEST says.

Source: RocksDB, options/options_parser.cc.
"""

from __future__ import annotations

import re

from stateshift.errors import FormatError

_WHAT = "an OPTIONS file"
_SECTION = re.compile(r'\[([\w/]+)(?:\s+"((?:\\.|[^"\\])*)")?\]')
_ESCAPED = re.compile(r"\\(.)")
_NEEDED = ("Version", "DBOptions")


def decode_options(content: bytes) -> tuple[str, ...]:
    """Return the names of the column families."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{_WHAT} is not UTF-8", None, error.start) from error
    sections = _sections(text)
    kinds = [kind for kind, _ in sections]
    missing = [kind for kind in _NEEDED if kind not in kinds]
    if missing:
        raise FormatError(f"{_WHAT} has no section [{missing[0]}]", None, len(content))
    return tuple(name for kind, name in sections if kind == "CFOptions")


def _sections(text: str) -> list[tuple[str, str]]:
    """Return kind and name of each section; check that every other line sets something."""
    sections: list[tuple[str, str]] = []
    position = 0
    for line in text.split("\n"):
        stripped = line.strip()
        is_setting = bool(sections) and "=" in stripped
        if stripped.startswith("["):
            sections.append(_section(stripped, position))
        elif not is_setting and not _is_ignored(stripped):
            raise FormatError(f"{_WHAT} has a line that sets nothing", None, position)
        position += len(line.encode("utf-8")) + 1
    return sections


def _section(line: str, position: int) -> tuple[str, str]:
    """Return a section's kind, and the name in it, empty where it has none."""
    section = _SECTION.fullmatch(line)
    if section is None:
        raise FormatError(f"{_WHAT} has a section without a name", None, position)
    return section[1], _ESCAPED.sub(r"\1", section[2] or "")


def _is_ignored(line: str) -> bool:
    return not line or line.startswith("#")
