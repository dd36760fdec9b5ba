"""Secrets taken out of what a job or a command said, before anybody sees it.

Three things are replaced by `***`: the value after a name that sounds like a secret (`--password
x`, `["--password", "x"]`, `fs.s3a.secret.key=x`, `"token": "x"`), the password inside a URL, and
the value of any environment variable whose name sounds like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stateshift.specification.text import secret_words

_NAME = (
    r"[\w.\-]*(?:passw(?:or)?d|secret|token|credential|(?:api|access|account|private)[._\-]?key"
    r"|(?<![a-z])(?:pass|pwd|auth)(?![a-z]))[\w.\-]*"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_DONE = r"\*{3}(?:['\"\s,;&}]|$)"  # it is hidden already, maybe within quotes
# A name is tried at its beginning alone: a word may be a whole file in base64.
_ASSIGNED = re.compile(
    rf"((?<![\w.\-]){_NAME}[\"']?\s*[=:]\s*)(?!{_DONE})(\"[^\"]*\"|'[^']*'|[^\s,;&}}]+)",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(--?{_NAME}\s+)(?!-)(\S+)", re.IGNORECASE)
_LISTED = re.compile(
    rf"([\"']--?{_NAME}[\"']\s*,\s*)(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=\-]{8,}", re.IGNORECASE)
_IN_URL = re.compile(r"(\w://[^/\s:@]*):[^/\s@]+@")
_BEFORE_VALUE = re.compile(r"[\w.\-]+=")
_NO_SECRETS = ("PWD", "OLDPWD", "SSH_AUTH_SOCK")
_LENGTH_MIN = 4  # shorter values are words like `no` and `1`, and would be found everywhere


def secret_values(*environments: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names sound like a secret's, the longest first."""
    values: set[str] = set()
    for environment in environments:
        for name, value in environment.items():
            if name in _NO_SECRETS or not _SECRET_NAME.fullmatch(name):
                continue
            if len(value) >= _LENGTH_MIN:
                values.add(value)
    return sorted(values, key=len, reverse=True)


def redact(text: str, *environments: Mapping[str, str]) -> str:
    """Return `text` without the secrets known by their names or held by `environments`."""
    for value in secret_values(*environments):
        text = text.replace(value, "***")
    text = _BEARER.sub(r"\1 ***", text)
    text = _IN_URL.sub(r"\1:***@", text)
    text = _LISTED.sub(r'\1"***"', text)
    text = _OPTION.sub(r"\1***", text)
    return _ASSIGNED.sub(r"\1***", text)


def redact_words(words: Sequence[str]) -> list[str]:
    """Return a command's words without those that are a secret, and without what is one in them."""
    clean = list(words)
    for number in secret_words(clean):
        assigned = _BEFORE_VALUE.match(clean[number])
        clean[number] = f"{assigned[0]}***" if assigned else "***"
    return clean


def last_lines(text: str, lines_max: int) -> str:
    """The end of `text`, blank lines at its end left out."""
    return "\n".join(text.rstrip().splitlines()[-lines_max:]) if lines_max > 0 else ""
