"""The name that was probably meant where a name is not known.

did_you_mean("ordrs", ["orders", "payments"])             ", did you mean 'orders'?"
did_you_mean("ordrs", ["orders"], BRACKETED)              " (did you mean 'orders'?)"
did_you_mean("pay", ["orders", "payments"])               ", did you mean 'payments'?"
did_you_mean("x", ["orders", "payments"])                 ""
"""

from __future__ import annotations

from collections.abc import Collection

# How a suggestion joins the sentence before it.
BEHIND_COMMA, BEHIND_COLON, BRACKETED = ", {}", ": {}", " ({})"

SIMILARITY_MIN = 0.6
PREFIX_MIN = 3  # letters of a name that was not written to its end

# Among more names, looking for the closest takes seconds.
COMPARED_MAX = 5_000


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that begins with `name`, or else the one most like it, in any case;
    None without one, or among too many.
    """
    if len(known) > COMPARED_MAX:
        return None
    from difflib import get_close_matches

    spellings = {spelling.lower(): spelling for spelling in known}
    longer = [spelling for spelling in spellings if spelling.startswith(name.lower())]
    if len(name) >= PREFIX_MIN and longer:
        return spellings[min(longer, key=len)]
    matches = get_close_matches(name.lower(), spellings, n=1, cutoff=SIMILARITY_MIN)
    return spellings[matches[0]] if matches else None


def did_you_mean(name: str, known: Collection[str], form: str = BEHIND_COMMA) -> str:
    """Return the suggestion after a name that is not known; nothing where none is near."""
    return suggest(closest(name, known), form)


def suggest(match: str | None, form: str = BEHIND_COMMA) -> str:
    """Return the suggestion of this name; nothing where there is none."""
    return "" if match is None else form.format(f"did you mean {match!r}?")
