"""Text to a plain tree: JSON, with what JSON itself lets pass refused, and `${NAME}` replaced.

    read_text("{...}")  -> Place of dictionaries, lists, strings, numbers; SpecError where it is not
                        JSON
    "${HOME}/in"           the variable's value; one that is not set is a complaint
    "$${HOME}"             the characters ${HOME}, for a shell to read

Keys are never replaced. Refused are: a key that stands twice in one object, NaN and infinities,
text that no file name or log can hold (a NUL, half a surrogate pair), a user's password inside a
URL, and bottomless nesting.

A spec is copied into the workdir and into plans, so it holds no credential:

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

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from stateshift.errors import SpecError
from stateshift.plain import Value
from stateshift.specification.place import CREDENTIALS_OF_URL, Complaints, Place
from stateshift.specification.written import DEPTH_MAX, Written, WrittenObject

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

WHERE_CREDENTIALS_BELONG = (
    "credentials in fsspec's own configuration, ~/.hdfscli.cfg, the environment of the program "
    "that needs them, or a file that the spec only names"
)


def read_text(text: str | Written, environment: Mapping[str, str], complaints: Complaints) -> Place:
    """Return the settled tree of a JSON text, or of what was written otherwise: strings are final,
    complaints of the text made.
    """
    written = text if isinstance(text, Written) else read_json(text)
    for each in written.complaints:
        key = each.pointer.rpartition("/")[2]
        quiet = replace(
            each, message="a value that YAML may read otherwise", expected="no credential"
        )
        complaints.made.append(quiet if is_secret_key(key) else each)
    return Place(_Settler(environment, complaints).settle(Place(written.tree, "")), "")


def protect(value: Value) -> Value:
    """Return a value as a spec has to spell it, so that no `${` in a text of it is replaced."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: protect(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [protect(item) for item in value]
    return value


def read_json(text: str) -> Written:
    """Return the tree of a JSON text, as it is written; raise SpecError if it is none."""
    try:
        return Written(json.loads(text.removeprefix("\ufeff"), object_pairs_hook=WrittenObject))
    except json.JSONDecodeError as error:
        # The line itself is not repeated: there may be a password in it.
        fact = f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        cause: Exception = error
    except RecursionError as error:
        fact, cause = "not a spec: nested too deeply", error
    except ValueError as error:  # a number of more digits than Python converts
        fact, cause = f"not a spec: {error}", error
    hint = "JSON takes double quotes, no comments, and no comma after the last item"
    raise SpecError.of("", fact, None, "one JSON object", hint=hint) from cause


@dataclass(eq=False)
class _Settler:
    """Walks the tree once. A value that is complained of is left out or made harmless."""

    _environment: Mapping[str, str]
    _complaints: Complaints

    def settle(self, place: Place, depth: int = 0) -> object:
        value = place.value
        if depth > DEPTH_MAX:
            self._complaints.add(place, "nested too deeply", f"at most {DEPTH_MAX} levels")
            return None
        if isinstance(value, WrittenObject):
            for key in place.value.twice:
                message = f"{key!r} stands more than once in one object"
                self._complaints.add(place / key, message, "each key once")
            items = {}
            for key in place.value:
                below = place / key
                at_key = Place(key, below.pointer)
                if self._is_text(at_key):
                    self._check_password(at_key)
                    items[key] = self.settle(below, depth + 1)
            return items
        if isinstance(value, list):
            return [self.settle(item, depth + 1) for item in place.items]
        if isinstance(value, str):
            return self._text(place)
        if isinstance(value, float) and not math.isfinite(value):
            self._complaints.add(place, "not a number that JSON knows", "a finite number")
            return None
        return value

    def _text(self, place: Place) -> str | None:
        if not self._is_text(place):
            return None
        text = _PLACEHOLDER.sub(lambda match: self._replace(match, place), place.value)
        self._check_password(Place(text, place.pointer))
        return text

    def _check_password(self, place: Place) -> None:
        if CREDENTIALS_OF_URL.search(place.value):
            self._complaints.add(place, "a password in a URL", WHERE_CREDENTIALS_BELONG)

    def _is_text(self, place: Place) -> bool:
        has_surrogate = any("\ud800" <= letter <= "\udfff" for letter in place.value)
        if "\0" not in place.value and not has_surrogate:
            return True
        self._complaints.add(place, "a NUL or half a surrogate pair", "text")
        return False

    def _replace(self, match: re.Match[str], place: Place) -> str:
        name = match[1]
        if name is None:
            return "${"
        names_variable = match[0].endswith("}") and _NAME.match(name) is not None
        if names_variable and name in self._environment:
            return self._environment[name]
        literally = "$" + match[0]
        if not names_variable:
            message = f"{match[0]!r} is no placeholder"
            expected = f"${{NAME}}, or {literally} for the characters themselves"
        else:
            message = f"the environment variable {name!r} is not set"
            expected = f"export {name}=..., or {literally} for the characters themselves"
        self._complaints.add(place, message, expected)
        return match[0]


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
