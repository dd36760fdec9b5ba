"""Places where a credential would stand. A spec is copied into the workdir and into plans, so it
holds none.

    {"dbPassword": "x"}, {"fs.s3a.secret.key": "x"}        the value under a telling key
    ["--password", "x"], ["--db-password=x"]               the argument behind a telling flag, or
                                                           with it
    ["DB_PASSWORD=x"], "run.sh --conf fs.s3a.secret.key=x"   an assignment to a telling name, in a
                                                             list or a command
    "curl -u name:x", ["curl", "--user=name:x"]            what curl sends as name and password

`password_file` and `fs.s3a.aws.credentials.provider` are not refused: they name where the
credential is. Nor is a value that is none itself: `{placeholder}`, `$NAME`, `${NAME}` and
`$(command)` are filled in by whoever runs the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from stateshift.specification.place import Complaints, Place
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = {
    *("pass", "password", "passwd", "passphrase", "pwd", "secret", "secrets", "token"),
    *("credential", "credentials"),
}
_SECRET_PAIRS = {(word, "key") for word in ("access", "api", "account", "private", "shared")}
_SECRET_RUNS = (
    *("password", "passwd", "secretkey", "accesskey", "apikey", "authtoken", "accesstoken"),
)
_HARMLESS_END = (
    *("class", "dir", "enabled", "file", "files", "interval", "length", "location", "path"),
    *("provider", "providers", "ratio", "type", "wait"),
)


def refuse_secrets(complaints: Complaints, place: Place) -> None:
    """Complain of every credential at and below a place."""
    for secret in secrets_in(place):
        named = repr(secret.key) if is_secret_key(secret.key) else "an argument"
        message = f"{named} looks like a credential, and specs are copied into plans and journals"
        complaints.add(secret, message, WHERE_CREDENTIALS_BELONG)


def is_secret_key(key: str) -> bool:
    """Whether the value under this key would be a credential."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_END:
        return False
    if not _SECRET_WORDS.isdisjoint(words) or _SECRET_PAIRS & set(pairwise(words)):
        return True
    # Words that make a credential may be written together.
    return any(run in word for word, run in product(words, _SECRET_RUNS))


# Placeholders of credentials.
_FILLED_IN = re.compile(r"\{[^{}]*\}|\$\w+|\$\{[^}]*\}|\$\(.*\)|%\w+%")
_FLAG = re.compile(r"--?([A-Za-z][\w.\-]*)")
_ASSIGNMENT = re.compile(r"(?:--?|-D)?([A-Za-z][\w.\-]*)=(.*)", re.DOTALL)
_NAME_AND_PASSWORD = re.compile(
    r"((?:-u|--user=|--proxy-user=)=?)?([^:/=\s]+):([^/\s].*)", re.DOTALL
)
_USER_FLAGS = ("-u", "-U", "--user", "--proxy-user")


def secret_words(words: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of those of a command's words that are, or hold, a credential."""
    before = ""
    of_curl = False
    for number, word in enumerate(words):
        if _is_credential(before, word, of_curl):
            yield number
        of_curl = of_curl or word.rpartition("/")[2] == "curl"
        before = word


def _is_credential(before: str, word: str, of_curl: bool) -> bool:
    """Whether a word is, or holds, a credential; `before` is the word before it."""
    if of_curl and _is_user_and_password(before, word):
        return True
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment is not None:
        return is_secret_key(assignment[1]) and _is_secret_text(assignment[2])
    flag = _FLAG.fullmatch(before)
    if flag is None or _FLAG.fullmatch(word) is not None:
        return False
    return is_secret_key(flag[1]) and _is_secret_text(word)


def _is_user_and_password(before: str, word: str) -> bool:
    """Whether these are two words, or one, of curl's that name a user with a password."""
    user = _NAME_AND_PASSWORD.fullmatch(word)
    if user is None:
        return False
    flag, _, password = user.groups()
    return (flag is not None or before in _USER_FLAGS) and _is_secret_text(password)


def _is_secret_text(text: str) -> bool:
    """Whether a text is there, and no placeholder."""
    return bool(text) and _FILLED_IN.fullmatch(text.strip("\"'")) is None


def words_of(command: str) -> list[str]:
    """Return a command's words as a shell would take them apart; by blanks where it could not."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def secrets_in(place: Place) -> Iterator[Place]:
    """Yield the places at and below this one that hold a credential. Their values are left out."""
    value = place.value
    secret: set[object] = set()
    if isinstance(value, str) and any(True for _ in secret_words(words_of(value))):
        yield place.hidden
    if isinstance(value, dict):
        for key in filter(is_secret_key, value):
            if not isinstance(value[key], bool) and value[key] not in (None, "", [], {}):
                secret.add(key)
    if isinstance(value, list):
        words = [word if isinstance(word, str) else "" for word in value]
        secret = set(secret_words(words))
    for key, below in place.children:
        if key in secret:
            yield below.hidden
        else:
            yield from secrets_in(below)
