"""Keys under which a credential would stand. A spec is copied into the workdir and into plans, so it holds none.

`fs.s3a.secret.key` and `dbPassword` are refused, `password_file` and `fs.s3a.aws.credentials.provider` are not: they
name where the credential is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stateshift.spec.place import Complaints, Place
from stateshift.spec.text import WHERE_CREDENTIALS_BELONG

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = {"password", "passwd", "passphrase", "secret", "secrets", "token", "credential", "credentials"}
_SECRET_PAIRS = {("access", "key"), ("api", "key"), ("account", "key"), ("private", "key"), ("shared", "key")}
_SECRET_RUNS = ("password", "passwd", "secretkey", "accesskey", "apikey", "authtoken", "accesstoken")
_HARMLESS_END = {
    "class", "dir", "enabled", "file", "files", "interval", "length", "location", "path", "provider", "providers",
    "ratio", "type", "wait",
}  # fmt: skip


def refuse_secrets(complaints: Complaints, place: Place) -> None:
    for secret in secrets_in(place):
        message = f"{secret.key!r} looks like a credential, and specs are copied into plans and journals"
        complaints.add(secret, message, WHERE_CREDENTIALS_BELONG)


def is_secret_key(key: str) -> bool:
    """Whether the value under this key would be a credential."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_END:
        return False
    pairs = set(pairwise(words))
    runs = any(run in word for word in words for run in _SECRET_RUNS)
    return runs or bool(_SECRET & set(words)) or bool(_SECRET_PAIRS & pairs)


def secrets_in(place: Place) -> Iterator[Place]:
    """The places below this one that stand under such a key and hold something. Their values are left out."""
    if isinstance(place.value, dict):
        for key in place.value:
            below = place / key
            if is_secret_key(key) and _may_be_secret(below.value):
                yield Place("(not shown)", below.pointer)
            else:
                yield from secrets_in(below)
    elif isinstance(place.value, list):
        for below in place.items:
            yield from secrets_in(below)


def _may_be_secret(value: Any) -> bool:
    return not isinstance(value, bool) and value not in (None, "", [], {})
