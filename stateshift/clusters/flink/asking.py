"""Requests to Flink over HTTP, to its JobManager or the SQL gateway before it: the credentials, and
the meaning of a "no" with a stack.

`calls` and `gateway` have the requests. A failure that says what is wrong is a refusal, whatever
its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar, Unpack

from stateshift.clusters.flink.causes import Cause, cause_of
from stateshift.clusters.http.rest import (
    OTHER_FIELDS,
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    authentication,
    secret_headers,
)
from stateshift.clusters.options import Options
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

T = TypeVar("T")

_PASSWORD: Final = "STATESHIFT_FLINK_PASSWORD"
_CREDENTIALS: Final = (
    'give the cluster "auth" and "user", with the password in STATESHIFT_FLINK_PASSWORD or a '
    '"password_file"; or a "token_file"; or "header_files" for a gateway before it'
)


@dataclass(frozen=True)
class Asking:
    """`options` are the cluster's, checked; `option` is the one that says where this is."""

    cluster: str
    url: str
    options: Options = field(default_factory=dict)
    words: str = "Flink"
    api: str = "Flink's REST API"
    example: str = "http://jobmanager:8081"
    option: str = "url"

    def call(
        self,
        method: str,
        path: str,
        failed: str | None = None,
        hints: Mapping[int, str] | None = None,
        **query: Unpack[Query],
    ) -> Json:
        """Return the object in the answer. `failed` is what it means if this is refused, and
        `hints` the way out by HTTP's status.
        """
        service, url = self._service(), self.place(path)
        return self._in_its_words(lambda: service.json(method, url, **query), failed, hints or {})

    def listed(self, path: str, **query: Unpack[Query]) -> list[Json]:
        """Return the list in the answer."""
        service, url = self._service(), self.place(path)
        return self._in_its_words(lambda: service.listed("GET", url, **query), None, {})

    def _service(self) -> Service:
        return Service(
            cluster=self.cluster,
            words=self.words,
            example=self.example,
            said="errors",
            ways_out={
                401: _CREDENTIALS,
                403: "this user may not do that: ask who runs the gateway before Flink",
                404: self._right,
            },
            options=self.options,
            headers=secret_headers(self.options, self.cluster),
            authentication=authentication(self.options, self.cluster, _PASSWORD),
            option=self.option,
        )

    def _in_its_words(
        self, ask: Callable[[], T], failed: str | None, hints: Mapping[int, str]
    ) -> T:
        try:
            return ask()
        except (Refused, Unanswered) as error:
            cause = cause_of(error.answer)
            if cause is None:
                raise
            raise self._restated(error, cause, failed, hints) from error

    def place(self, path: str) -> str:
        return self.url.rstrip("/") + path

    @contextmanager
    def read(self, path: str) -> Iterator[None]:
        """Report whoever answers with other fields than Flink does: an answer is read in here."""
        try:
            yield
        except OTHER_FIELDS as error:
            raise Unanswered(
                f"{redact(self.place(path))} does not answer as {self.words} does there: "
                f"{type(error).__name__} {error}",
                cluster=self.cluster,
                hint=self._right,
            ) from error

    def _restated(
        self,
        error: Refused | Unanswered,
        cause: Cause,
        failed: str | None,
        hints: Mapping[int, str],
    ) -> ClusterError:
        """Return the same error with the cause that Flink names."""
        status = error.status or 0
        hint = cause.hint or hints.get(status) or error.hint or "the JobManager's log has all of it"
        means = f"{failed}: " if failed else ""
        fact = f"{redact(self.url)}: {means}{cause.fact}"
        if isinstance(error, Refused) or (status == 500 and cause.certain):
            return Refused(fact, status, error.answer, cluster=self.cluster, hint=hint)
        return Unanswered(fact, status, error.answer, cluster=self.cluster, hint=hint)

    @property
    def _right(self) -> str:
        return f'"{self.option}" has to be that of {self.api}, such as {self.example}'
