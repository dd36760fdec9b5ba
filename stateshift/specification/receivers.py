"""Who is notified of a run's events, as a spec says it.

    "on": {"ready": ["notify-send", "ready"],
           "failed": {"command": ["./page.sh", "--on-call"], "seconds_max": 20},
           "finished": {"url_variable": "SLACK_URL"}}

The URL of a webhook is a credential wherever a token is part of it, as with Slack. So it never
stands in the spec: the spec names the variable, or the file, that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.specification.keys.parts import ON, RECEIVER
from stateshift.specification.model import Receiver, Receivers
from stateshift.specification.place import Place
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG
from stateshift.specification.values import Reader, Values

SECONDS_MAX = 60.0
WAYS = ("command", "url_variable", "url_file")
_EXPECTED = (
    "a command as a list of words, or an object with one of 'command', 'url_variable', 'url_file'"
)


def read_receivers(reader: Reader, place: Place) -> Receivers | None:
    """Return who is notified; None where nobody is."""
    known = reader.known(place, ON)
    receivers = {event: _receiver(reader, below) for event, below in known.items()}
    return Receivers(**receivers) if receivers else None


def _receiver(reader: Reader, place: Place) -> Receiver | None:
    if isinstance(place.value, list):
        return Receiver(_words(reader, place))
    if not isinstance(place.value, dict):
        _refuse(reader, place)
        return None
    known = reader.known(place, RECEIVER)
    ways = [way for way in WAYS if way in known]
    if len(ways) != 1:
        given = " and ".join(map(repr, ways)) or "neither a command nor a webhook"
        reader.complaints.add(place, f"{given}: one receiver is notified", _EXPECTED)
        return None
    return Receiver(**_fields(reader, known))


def _refuse(reader: Reader, place: Place) -> None:
    """Complain of a value of another type. A URL is not repeated: a token may be part of it."""
    if isinstance(place.value, str) and "://" in place.value:
        hidden = Place("(not shown)", place.pointer)
        message = "the URL of a webhook is a credential, and specs are copied into plans"
        reader.complaints.add(hidden, message, WHERE_CREDENTIALS_BELONG)
    else:
        reader.refuse(place, _EXPECTED)


def _fields(reader: Reader, known: Mapping[str, Place]) -> Values:
    """Return what is said, by the names of the model."""
    others = {name: place for name, place in known.items() if name != "command"}
    fields = reader.fields(RECEIVER, others)
    if "command" in known:
        fields["command"] = _words(reader, known["command"])
    if "url_file" in fields:
        _check_local(reader, known["url_file"], fields["url_file"])
    if "url_variable" in fields:
        _check_variable(reader, known["url_variable"], fields["url_variable"])
    if fields.get("seconds_max", 0.0) > SECONDS_MAX:
        reader.refuse(known["seconds_max"], f"a number of seconds up to {SECONDS_MAX:g}")
    return fields


def _words(reader: Reader, place: Place) -> tuple[str, ...]:
    """Return the words of a command. None of them may be a credential."""
    expected = "a list of words, the first of them a program"
    if not reader.is_a(place, list, expected):
        return ()
    words = tuple(word for word in place.value if isinstance(word, str))
    if len(words) != len(place.value) or not words or not words[0].strip():
        reader.refuse(place, expected)
        return ()
    refuse_secrets(reader.complaints, place)
    return words


def _check_local(reader: Reader, place: Place, location: str) -> None:
    if not location.startswith("file://"):
        hidden = Place("(not shown)", place.pointer)
        message = "not a file on this machine that holds the URL"
        reader.complaints.add(hidden, message, "a file on this machine")


def _check_variable(reader: Reader, place: Place, name: str) -> None:
    """Complain of a URL where the name of a variable belongs."""
    if not name.replace("_", "a").isalnum():
        hidden = Place("(not shown)", place.pointer)
        reader.complaints.add(hidden, "not the name of a variable", "a name such as SLACK_URL")
