"""The notifications of a run: each is sent in a thread of its own, so that the run never waits for
a receiver. At its end the run waits for what is still under way, for the receivers' time and no
longer. What fails is logged, and changes nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from stateshift.notification.event import Event, Notification
from stateshift.notification.sending import NotSent, name_of, send
from stateshift.specification import Receiver, Receivers

GRACE_SECONDS = 2.0  # a command that is killed, and an answer whose headers come slowly

_log = logging.getLogger(__name__)


@dataclass
class _Sending:
    """A notification under way; `event` is set when it is over."""

    event: Event
    until: float
    thread: threading.Thread
    sent: threading.Event = field(default_factory=threading.Event)


class Notifier:
    """Sends what a run's spec asks for."""

    def __init__(self, receivers: Receivers | None) -> None:
        self._receivers = receivers or Receivers()
        self._under_way: list[_Sending] = []

    def wants(self, event: Event) -> bool:
        """Whether somebody is to be notified of this event."""
        return self._receiver(event) is not None

    def notify(self, notification: Notification) -> None:
        """Begin to send it; return at once."""
        receiver = self._receiver(notification.event)
        if receiver is None:
            return
        sent = threading.Event()
        thread = threading.Thread(
            target=_send,
            args=(notification, receiver, sent),
            name=f"notify-{notification.event}",
            daemon=True,
        )
        until = time.monotonic() + receiver.seconds_max + GRACE_SECONDS
        self._under_way.append(_Sending(notification.event, until, thread, sent))
        thread.start()

    def wait(self) -> frozenset[Event]:
        """Wait for what is under way, as long as it may take. Return the events that were sent."""
        sendings, self._under_way = self._under_way, []
        for sending in sendings:
            sending.thread.join(max(0.0, sending.until - time.monotonic()))
            if sending.thread.is_alive():
                _log.warning("nobody was notified of %s: it takes too long", sending.event)
        return frozenset(sending.event for sending in sendings if sending.sent.is_set())

    def _receiver(self, event: Event) -> Receiver | None:
        match event:
            case "ready":
                return self._receivers.ready
            case "failed":
                return self._receivers.failed
            case "finished":
                return self._receivers.finished


def _send(notification: Notification, receiver: Receiver, sent: threading.Event) -> None:
    """Send it, whatever happens: an error of ours here is no error of the run."""
    name = name_of(receiver)
    try:
        send(notification, receiver)
    except NotSent as error:
        _log.warning("%s was not notified of %s: %s", name, notification.event, error)
    except Exception as error:
        # Without its text: a URL may be a part of that.
        kind = type(error).__name__
        _log.warning("%s was not notified of %s: %s", name, notification.event, kind)
    else:
        sent.set()
        _log.info("%s was notified of %s", name, notification.event)
