"""The receivers of a run's events in a spec: their keys, and how they are read.

    "on": {"ready": ["notify-send", "ready"],
           "failed": {"command": ["./page.sh", "--on-call"], "seconds_max": 20},
           "finished": {"url_variable": "SLACK_URL"}}

The URL of a webhook is a credential wherever a token is part of it, as with Slack. It never
stands in the spec, which names the variable, or the file, that holds it.
"""

from __future__ import annotations

from stateshift.specification.key import Key, Keys, Kind, Reader, either, reference
from stateshift.specification.model import Receiver, Receivers
from stateshift.specification.place import Place
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG
from stateshift.specification.values import LOCATION, NUMBER, TEXT, WORDS

SECONDS_MAX = 60.0
WAYS = ("command", "url_variable", "url_file")
_EXPECTED = (
    "a command as a list of words, or an object with one of 'command', 'url_variable', 'url_file'"
)

RECEIVER = Keys(
    Receiver,
    command=WORDS("A command, word by word. It gets the event as JSON on its standard input."),
    url_variable=TEXT("The environment variable that holds the URL of a webhook, such as Slack's."),
    url_file=LOCATION("A file on this machine that holds the URL of a webhook."),
    seconds_max=NUMBER(
        "How long it may take, 60 at most. Whoever runs stateshift waits that long at the end."
    ),
)


def _receiver(reader: Reader, key: Key, place: Place) -> Receiver | None:
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
    return _receiver_of(reader, known)


def _refuse(reader: Reader, place: Place) -> None:
    """Complain of a value of another type. A URL is not repeated: a token may be part of it."""
    if isinstance(place.value, str) and "://" in place.value:
        message = "the URL of a webhook is a credential, and specs are copied into plans"
        reader.complaints.add(place.hidden, message, WHERE_CREDENTIALS_BELONG)
    else:
        reader.refuse(place, _EXPECTED)


def _receiver_of(reader: Reader, known: dict[str, Place]) -> Receiver:
    """Return the receiver of an object; complain of values that belong elsewhere."""
    command = known.pop("command", None)
    fields = reader.fields(RECEIVER, known)
    if command is not None:
        fields["command"] = _words(reader, command)
    if not fields.get("url_file", "file://").startswith("file://"):
        message = "not a file on this machine that holds the URL"
        reader.complaints.add(known["url_file"].hidden, message, "a file on this machine")
    if not fields.get("url_variable", "A").replace("_", "a").isalnum():
        message, expected = "not the name of a variable", "a name such as SLACK_URL"
        reader.complaints.add(known["url_variable"].hidden, message, expected)
    if fields.get("seconds_max", 0.0) > SECONDS_MAX:
        reader.refuse(known["seconds_max"], f"a number of seconds up to {SECONDS_MAX:g}")
    return Receiver(**fields)


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


RECEIVER_VALUE = Kind("receiver", _receiver, either(WORDS.schema, reference("webhook_or_command")))
ON = Keys(
    Receivers,
    ready=RECEIVER_VALUE(
        "A warm job could be stopped now and waits for `stateshift cutover` or its hours; or a "
        "standby has its first image to start from."
    ),
    failed=RECEIVER_VALUE("The run has ended with an error, or was interrupted."),
    finished=RECEIVER_VALUE("The run is finished."),
)


def _receivers(reader: Reader, key: Key, place: Place) -> Receivers | None:
    """Return the receivers by event; None where there is none."""
    known = reader.known(place, ON)
    receivers = {event: reader.value(ON[event], below) for event, below in known.items()}
    return Receivers(**receivers) if receivers else None


ON_OBJECT = Kind("on", _receivers, reference("on"))
