"""RocksDB's OPTIONS file, as far as it says what a database has.

    [Version] | [DBOptions] | [CFOptions "NAME"] | [TableOptions/BlockBasedTable "NAME"]  sections
      key=value                                                                           their lines; # a comment

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
    """The names of the column families."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{_WHAT} is not UTF-8", None, error.start) from error
    families: list[str] = []
    seen: set[str] = set()
    position = 0
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith("["):
            section = _SECTION.fullmatch(stripped)
            if section is None:
                raise FormatError(f"{_WHAT} has a section without a name", None, position)
            seen.add(section[1])
            if section[1] == "CFOptions":
                families.append(_ESCAPED.sub(r"\1", section[2] or ""))
        elif stripped and not stripped.startswith("#") and ("=" not in stripped or not seen):
            raise FormatError(f"{_WHAT} has a line that sets nothing", None, position)
        position += len(line.encode("utf-8")) + 1
    missing = [name for name in _NEEDED if name not in seen]
    if missing:
        raise FormatError(f"{_WHAT} has no section [{missing[0]}]", None, len(content))
    return tuple(families)
