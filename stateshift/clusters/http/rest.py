"""Asking a service over HTTP that answers in JSON: what it says, that it said no, or that nobody
knows.

Whether a request has had an effect is not known where its answer did not come, and where the server
failed (5xx): `Unanswered`. A refusal (4xx) has had none: `Refused`. No message has a credential in
it.

Options of a cluster: ca_file, whose authority the server's certificate is of; cert_file and
key_file, our own; request_seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

T = TypeVar("T")

_log = logging.getLogger(__name__)

SECONDS_TO_CONNECT: Final = 10.0
REQUEST_SECONDS: Final = 60.0


class Unanswered(ClusterError):
    """No answer, or one from which it cannot be told whether the request had an effect. `status` is
    HTTP's where there was one, `told` what it said.
    """

    def __init__(self, fact: str, status: int | None = None, told: Any = None, **more: Any) -> None:
        super().__init__(fact, **more)
        self.status, self.told = status, told


class Refused(ClusterError):
    """An answer that says no. `status` is HTTP's."""

    def __init__(self, fact: str, status: int, told: Any = None, **more: Any) -> None:
        super().__init__(fact, **more)
        self.status, self.told = status, told


@dataclass(frozen=True)
class Service:
    """Whom we ask. `words` is what it is called, `example` a URL of one, `said` where it says what
    is wrong, `ways_out` a hint for a status. `options` are the cluster's: ca_file, request_seconds,
    and those of `authentication`.
    """

    cluster: str
    words: str
    example: str
    said: str
    ways_out: Mapping[int, str]
    options: Mapping[str, Any]
    headers: Mapping[str, str]
    authentication: Any = None
    option: str = "url"  # of the cluster, where this is to be reached

    def json(self, method: str, url: str, **asked: Any) -> dict[str, Any]:
        """The object in the answer."""
        told: dict[str, Any] = self._told(dict, method, url, **asked)
        return told

    def listed(self, method: str, url: str, **asked: Any) -> list[Any]:
        """The list in the answer."""
        told: list[Any] = self._told(list, method, url, **asked)
        return told

    def _told(self, kind_of_answer: type, method: str, url: str, **asked: Any) -> Any:
        answer = self._asked(method, url, **asked)
        try:
            told = answer.json()
        except ValueError:
            told = None
        status = answer.status_code
        if status < 300 and isinstance(told, kind_of_answer):
            return told
        if status < 300 or (
            status < 500 and not isinstance(told, dict) and status not in (401, 403, 404)
        ):
            kind = answer.headers.get("Content-Type", "no content type")
            raise self.odd(url, f"does not answer as {self.words} does (HTTP {status}, {kind})")
        said = (
            redact(str(told.get(self.said, told))[:500], os.environ)
            if isinstance(told, dict)
            else ""
        )
        raise self._failed(
            status,
            f"{redact(url)}: HTTP {status} for {method}" + (f": {said}" if said else ""),
            told,
        )

    def text(self, url: str, **asked: Any) -> str:
        """A page as it is."""
        answer = self._asked("GET", url, **asked)
        if answer.status_code >= 300:
            raise self._failed(
                answer.status_code, f"{redact(url)}: HTTP {answer.status_code} for GET"
            )
        return str(answer.text)

    def odd(self, url: str, fact: str) -> Unanswered:
        return Unanswered(
            f"{redact(url)} {fact}",
            cluster=self.cluster,
            hint=f'"{self.option}" has to be that of {self.words}, such as {self.example}',
        )

    def _failed(self, status: int, fact: str, told: Any = None) -> ClusterError:
        if status >= 500 or status in (408, 425, 429):
            hint = "try again in a moment: stateshift resume WORKDIR"
            return Unanswered(fact, status, told, cluster=self.cluster, hint=hint)
        return Refused(fact, status, told, cluster=self.cluster, hint=self.ways_out.get(status))

    def _asked(self, method: str, url: str, **asked: Any) -> Any:
        import requests

        began = time.perf_counter()
        try:
            answer = requests.request(
                method,
                url,
                auth=self.authentication,
                headers=dict(self.headers),
                verify=self.options.get("ca_file", True),
                cert=_certificate(self.options),
                timeout=(
                    SECONDS_TO_CONNECT,
                    float(self.options.get("request_seconds", REQUEST_SECONDS)),
                ),
                allow_redirects=False,
                **asked,
            )
            _log_answer(method, url, answer, began)
            return answer
        except requests.exceptions.RequestException as error:
            _log.debug("%s %s: no answer: %s", method, redact(url), type(error).__name__)
            if isinstance(error, requests.exceptions.SSLError):
                raise self._not_secured(url, _reason(error)) from error
            raise Unanswered(
                f"{redact(_host(url))} does not answer: {type(error).__name__}: {_reason(error)}",
                cluster=self.cluster,
                hint=(
                    f'is {self.words} up, and "{self.option}" right? Then: stateshift resume '
                    "WORKDIR"
                ),
            ) from error
        except OSError as error:  # requests looks for the file before it opens a connection
            raise self._unreadable(error) from error

    def _not_secured(self, url: str, why: str) -> Unanswered:
        if "verif" in why.lower():
            fact = f"{redact(_host(url))} shows a certificate that is not trusted: {why}"
            hint = '"ca_file" of the cluster names the file of the authority that signed it'
            return Unanswered(fact, cluster=self.cluster, hint=hint)
        fact = f"{redact(_host(url))} breaks off the secured connection: {why}"
        hint = (
            'is it https there? and does it ask for our certificate ("cert_file" and '
            '"key_file" of the cluster)?'
        )
        return Unanswered(fact, cluster=self.cluster, hint=hint)

    def _unreadable(self, error: OSError) -> Unanswered:
        """A file of certificates that is not there: which of them, only the words tell."""
        whose = {
            "CA certificate": ("ca_file", "the authority's certificate"),
            "key file": ("key_file", "our own key"),
        }
        ours = ("cert_file", "our own certificate")
        option, words = next((named for said, named in whose.items() if said in str(error)), ours)
        hint = f"name the file of {words}"
        return Unanswered(f'"{option}": {redact(str(error))}', cluster=self.cluster, hint=hint)


def through_outages(look: Callable[[], T | None], seconds_max: float) -> Callable[[], T | None]:
    """`look`, for which no answer means "not yet", until there has been none for that long."""
    silent_since: list[float] = []

    def patient() -> T | None:
        try:
            found = look()
        except Unanswered:
            silent_since.append(time.monotonic())
            if silent_since[-1] - silent_since[0] > seconds_max:
                raise
            return None
        silent_since.clear()
        return found

    return patient


def _log_answer(method: str, url: str, answer: Any, began: float) -> None:
    if _log.isEnabledFor(logging.DEBUG):
        milliseconds = (time.perf_counter() - began) * 1000
        bytes = len(answer.content)
        _log.debug(
            "%s %s: HTTP %d, %.1f ms, %d bytes",
            method,
            redact(url),
            answer.status_code,
            milliseconds,
            bytes,
        )


def _certificate(options: Mapping[str, Any]) -> Any:
    """Our own, where the server asks for one: a file with both, or with a file of the key beside
    it.
    """
    file, key = options.get("cert_file"), options.get("key_file")
    return (str(file), str(key)) if file and key else file


def _reason(error: Exception) -> str:
    inner: Any = error.args[0] if error.args else error
    return redact(str(getattr(inner, "reason", None) or inner)[:300], os.environ)


def read_secret(path: object, words: str, cluster: str) -> str:
    """What a file holds that is nobody else's business, but for the newline at its end."""
    try:
        return Path(str(path)).read_text("utf-8").rstrip("\n")
    except OSError as error:
        fact = f"the {words} file {path} cannot be read: {error.strerror}"
        raise ClusterError(fact, cluster=cluster, hint=f'name another "{words}_file"') from error


def _host(url: str) -> str:
    """scheme://host:port of a URL."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
