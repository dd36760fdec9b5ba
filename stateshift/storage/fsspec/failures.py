"""Errors of the packages behind fsspec, as StorageErrors.

They raise what they like: OSErrors, errors of botocore, aiohttp, requests, azure, google, and plain
RuntimeErrors. None of those packages is imported here: an error is recognised by the names of its
classes, by the HTTP status and the service's error code that it, or what caused it, carries. Only
errors that are known to pass are transient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stateshift.errors import StorageError, TransientStorageError
from stateshift.storage import failures
from stateshift.storage.locations import redact

STATUS_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_CODES_PASSING: Final = frozenset(
    (
        *("ConditionalRequestConflict", "InternalError", "OperationAborted", "OperationTimedOut"),
        "NoSuchUpload",  # somebody tidied away the parts of what is being written
        *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "SlowDown"),
        *("RequestTimeout", "RequestTimeoutException", "ServerBusy", "ServiceUnavailable"),
        *("Throttling", "ThrottlingException", "ThrottledException"),
        *("TooManyRequests", "TooManyRequestsException"),
    )
)

_CLASSES_PASSING: Final = frozenset(
    (
        # gcsfs, botocore: the bytes that came are not those that were sent
        *("ChecksumError", "FlexibleChecksumError"),
        "ResponseParserError",  # botocore: no XML, as what stands before a busy service may answer
        *("ChunkedEncodingError", "IncompleteRead", "IncompleteReadError", "ProtocolError"),
        *("ClientConnectorError", "ClientConnectionError", "ClientOSError", "ClientPayloadError"),
        *("ConnectTimeout", "ConnectTimeoutError", "ReadTimeout", "ReadTimeoutError"),
        *("ConnectionClosedError", "ConnectionError", "NewConnectionError", "TransportError"),
        *("EndpointConnectionError", "FSTimeoutError", "HTTPClientError"),
        *("ProxyConnectionError", "ProxyError", "ResponseStreamingError"),
        *("RetriableException", "StandbyException"),
        *("ServerDisconnectedError", "ServerTimeoutError"),
        *("ServiceRequestError", "ServiceRequestTimeoutError"),
        *("ServiceResponseError", "ServiceResponseTimeoutError"),
    )
)

_CLASSES_CREDENTIALS: Final = frozenset(
    (
        *("ClientAuthenticationError", "CredentialRetrievalError", "DefaultCredentialsError"),
        *("NoCredentialsError", "PartialCredentialsError", "RefreshError"),
        *("TokenRetrievalError", "UnauthorizedSSOTokenError"),
    )
)

_CODES_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"})

# Raised by a mistake of ours, or of a package, and not by the world: kept as they are.
MISTAKES: Final = (AssertionError, AttributeError, NameError, TypeError)


def from_fsspec(error: Exception, location: str, path: str = "", host: str = "") -> StorageError:
    """Return the StorageError for an exception of a file system that asked `host`, if known."""
    place = failures.place_of(location, path)
    asked = f"{place} (at {host})" if host else place
    if is_bucket_missing(error):
        return StorageError(
            f"{asked}: the bucket is not there",
            location=place,
            hint="make the bucket, or check its name and which service is asked "
            "(AWS_ENDPOINT_URL_S3, endpoint_url in ~/.config/fsspec)",
        )
    passing = any(map(_is_passing, _chain(error)))
    if isinstance(error, FileNotFoundError) and not passing:
        return failures.missing(location, path)
    if is_taken(error):
        return failures.already_there(location, path)
    fact = f"{asked}: {_text(error)}"
    if passing:
        hint = "try again in a moment; a run goes on with: stateshift resume WORKDIR"
        return TransientStorageError(fact, location=place, hint=hint)
    refused = isinstance(error, PermissionError)
    for cause in _chain(error):
        refused |= _status(cause) in (401, 403) or type(cause).__name__ in _CLASSES_CREDENTIALS
    if refused:
        return StorageError(
            fact,
            location=place,
            hint=(
                "check the credentials fsspec finds (its configuration, the environment) and "
                "their rights"
            ),
        )
    if isinstance(error, OSError) and error.errno:
        known = failures.from_os(error, location, path)
        return type(known)(f"{known.fact} ({_text(error)})", location=place, hint=known.hint)
    return StorageError(fact, location=place)


def is_taken(error: BaseException) -> bool:
    """Whether an exclusive create was refused because somebody was first."""
    if isinstance(error, FileExistsError):
        return True
    codes = ("PreconditionFailed", "BlobAlreadyExists")
    return any(_status(cause) == 412 or _code(cause) in codes for cause in _chain(error))


def is_bucket_missing(error: BaseException) -> bool:
    """Whether an error, or one that caused it, says that the whole bucket is not there."""
    return any(_code(cause) in _CODES_NO_BUCKET for cause in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError) or _code(error) in _CODES_PASSING:
        return True
    if isinstance(error, OSError) and error.errno in failures.PASSING:
        return True
    status = _status(error)
    if status is not None:
        return status in STATUS_PASSING
    return any(kind.__name__ in _CLASSES_PASSING for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of aiohttp's, azure's, gcsfs's, botocore's or requests' error."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        answered = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        answered = getattr(response, "status_code", None)
    own = [getattr(error, name, None) for name in ("status", "status_code", "code")]
    for value in (answered, *own):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isdecimal():
            return int(value)
    return None


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    answered = response if isinstance(response, dict) else {}
    code = answered.get("Error", {}).get("Code") or getattr(error, "error_code", None)
    return None if code is None else str(getattr(code, "value", code))


def _text(error: BaseException) -> str:
    """Return one line without credentials, and without an OSError's number: the words say more."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
    line = next(iter(words.strip().splitlines()), "")
    if type(error) is OSError and words:
        return redact(line)
    kind = type(error).__name__
    return redact(f"{kind}: {line}" if line else kind)
