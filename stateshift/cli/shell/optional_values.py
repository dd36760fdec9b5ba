"""Options whose value may be left out: typer knows none, so what was left out is put in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

# The value of a time that was left out.
UNBOUNDED = "unbounded"
_OPTIONS = {"rebalance": "--wait"}
_TIME = re.compile(r"\d")


def with_values(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with a value behind an option that has none: the next word is one only
    if it begins as a time does.
    """
    option = _OPTIONS.get(arguments[0]) if arguments else None
    for argument, word in zip_longest(arguments, arguments[1:], fillvalue=""):
        yield argument
        if option is not None and argument == option and not _TIME.match(word):
            yield UNBOUNDED
