"""Errors of HDFS as StorageErrors: by the class of Hadoop's exception, which both ways of reaching
HDFS give.

    over HTTP  {"RemoteException": {"exception": "SafeModeException", "message": "...", ...}}
    natively   RPC error: org.apache.hadoop.hdfs.server.namenode.SafeModeException: ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Final

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from requests import Response

RESUME: Final = "stateshift resume WORKDIR"
UNREACHED: Final = (
    "is that host and port right, and its server up? A NameNode is asked over HTTP, at the address "
    "that HADOOP_CONF_DIR configures for it; else at Hadoop's default port, 9870, of the host that "
    "the location names. Nameservices are found through HADOOP_CONF_DIR"
)
_REPORT: Final = "hdfs dfsadmin -report"
_ACTIVE: Final = "no NameNode is active: hdfs haadmin -getAllServiceState"
_QUOTA: Final = "hdfs dfs -count -q {path}; free some space, then stateshift resume WORKDIR"
_KNOWN_BY: Final = "kinit, or name a client with credentials for this authority in ~/.hdfscli.cfg"
_LIMITS: Final = "hdfs getconf -confKey dfs.namenode.fs-limits."

# exception -> the way out; these pass by themselves, or when somebody looks after the cluster
_PASSING: Final[dict[str, str]] = {
    "SafeModeException": f"hdfs dfsadmin -safemode get; then {RESUME}",
    "StandbyException": _ACTIVE,
    "ObserverRetryOnActiveException": _ACTIVE,
    "RetriableException": f"the NameNode is starting; then {RESUME}",
    "AlreadyBeingCreatedException": "another writer holds the file; its lease ends after a minute",
    "LeaseExpiredException": RESUME,
    "RecoveryInProgressException": RESUME,
    "NotReplicatedYetException": RESUME,
    "BlockMissingException": "a block has no DataNode that is alive: hdfs fsck {path}",
    "ServerTooBusyException": RESUME,
    "CallQueueTooBigException": RESUME,
    "ConnectException": _REPORT,
    "SocketTimeoutException": _REPORT,
    "NoRouteToHostException": _REPORT,
}

# Words of an IOException where no DataNode takes a block: by RPC, and before WebHDFS redirects.
_NO_DATANODE: Final = (
    "could only be written to",
    "could only be replicated to",
    "Failed to find datanode",
)

# exception -> what happened, and what to do about it
_LASTING: Final[dict[str, tuple[str, str]]] = {
    "AccessControlException": (
        "no permission on",
        "hdfs dfs -ls -d {path}; hdfs dfs -getfacl {path}",
    ),
    "SecurityException": ("the NameNode does not know who asks, at", _KNOWN_BY),
    "AuthenticationException": ("the NameNode does not know who asks, at", _KNOWN_BY),
    "AuthorizationException": (
        "not allowed, at",
        "for a proxy user: hadoop.proxyuser.* of the NameNode",
    ),
    "InvalidToken": (
        "the delegation token is no longer valid, at",
        "fetch another one, and put it where it was read",
    ),
    "DSQuotaExceededException": ("the space quota is used up at", _QUOTA),
    "NSQuotaExceededException": ("the quota of names is used up at", _QUOTA),
    "QuotaByStorageTypeExceededException": ("the space quota is used up at", _QUOTA),
    "PathComponentTooLongException": ("a name is too long for", f"{_LIMITS}max-component-length"),
    "MaxDirectoryItemsExceededException": (
        "too many files in one directory at",
        f"{_LIMITS}max-directory-items",
    ),
    "ParentNotDirectoryException": (
        "a file stands where a directory is needed, at",
        "hdfs dfs -ls -d {path}",
    ),
    "PathIsNotEmptyDirectoryException": (
        "a directory that is not empty is not removed:",
        "hdfs dfs -ls {path}",
    ),
    "InvalidPathException": ("HDFS takes no such name:", "names without `:` and `//`"),
    "SnapshotAccessControlException": ("a snapshot is not written to:", "name another location"),
    "UnresolvedPathException": (
        "a symbolic link, which HDFS leaves to its client:",
        "name the place it leads to",
    ),
}

# Exceptions of a NameNode that is not the one to ask.
ON_ANOTHER: Final = frozenset({"StandbyException", "ObserverRetryOnActiveException"})


@contextlib.contextmanager
def translate_errors(location: str, path: str) -> Iterator[None]:
    """Raise errors of connections, host names, timeouts and TLS as StorageErrors."""
    import requests

    try:
        yield
    except (
        requests.exceptions.SSLError,
        requests.exceptions.InvalidURL,
        requests.exceptions.InvalidSchema,
    ) as error:
        raise StorageError(
            f"{_place(location, path)}: {_short(error)}",
            location=_place(location, path),
            hint=(
                "check the host, the port and, with https, `verify` of the client in ~/.hdfscli.cfg"
            ),
        ) from error
    except requests.exceptions.RequestException as error:
        raise TransientStorageError(
            f"{_place(location, path)}: {_short(error)}",
            location=_place(location, path),
            hint=UNREACHED,
        ) from error


def from_answer(answer: Response, location: str, path: str) -> StorageError:
    """Return the StorageError for an HTTP answer."""
    kind, message = exception_of(answer), str(_exception(answer).get("message", ""))
    if kind:
        return from_exception(kind, message, location, path)
    status = answer.status_code
    if status in (401, 403, 407):
        return from_exception("SecurityException", message or f"HTTP {status}", location, path)
    if status in (408, 425, 429) or status >= 500:
        place = _place(location, path)
        fact = f"{place}: HTTP {status} from {_host(answer)}"
        return TransientStorageError(fact, location=place, hint=RESUME)
    return not_hdfs(answer, location, path)


def from_exception(kind: str, message: str, location: str, path: str) -> StorageError:
    """Return the StorageError for one of Hadoop's exceptions, by the last name of its class."""
    place, text = _place(location, path), f"{kind}: {_line(message)}"
    pasted = quote(place)
    if kind == "FileNotFoundException":
        hint = f"stateshift inspect {quote(redact(location))}"
        return MissingFile(f"{place} is not there", location=place, hint=hint)
    if kind == "FileAlreadyExistsException":
        return AlreadyThere(
            f"{place} is there already", location=place, hint=f"stateshift inspect {pasted}"
        )
    # AccessControlException: what is below a file can't be asked for
    if "is not a directory)" in message:
        fact = f"a file stands where a directory is needed, above {place}"
        return MissingFile(fact, location=place, hint=f"hdfs dfs -ls -d {pasted}")
    if "must both be" in message:  # a rename of a file over a directory
        fact = f"a directory stands where a file is needed, at {place}"
        return StorageError(fact, location=place, hint=f"hdfs dfs -ls {pasted}")
    if kind in _PASSING:
        hint = _PASSING[kind].format(path=pasted)
        return TransientStorageError(f"{place}: {text}", location=place, hint=hint)
    if any(words in message for words in _NO_DATANODE):
        hint = f"{_REPORT}: no DataNode takes it: they are down, or full"
        return TransientStorageError(f"{place}: {text}", location=place, hint=hint)
    if kind in _LASTING:
        fact, hint = _LASTING[kind]
        hint = hint.format(path=pasted)
        return StorageError(f"{fact} {place} ({text})", location=place, hint=hint)
    return StorageError(f"{place}: {text}", location=place, hint=f"hdfs dfs -ls {pasted}")


def exception_of(answer: Response) -> str:
    """Return the last name of the class of Hadoop's exception in an answer, else nothing."""
    return str(_exception(answer).get("exception", "")).rpartition("$")[2]


def not_hdfs(answer: Response, location: str, path: str) -> StorageError:
    """Return the error for an answer of something else than a NameNode or DataNode."""
    place = _place(location, path)
    answered = f"HTTP {answer.status_code}, {answer.headers.get('Content-Type', 'no content type')}"
    return StorageError(
        f"{place}: {_host(answer)} does not answer as WebHDFS does ({answered})",
        location=place,
        hint="give the NameNode's HTTP address: hdfs getconf -confKey dfs.namenode.http-address",
    )


def none_active(refusals: Sequence[StorageError], location: str, path: str) -> StorageError:
    """Return the error for NameNodes that were all asked, with what each said."""
    if len(refusals) == 1:
        return refusals[0]
    place = _place(location, path)
    facts = dict.fromkeys(error.fact.removeprefix(f"{place}: ") for error in refusals)
    fact = f"{place}: no NameNode is active ({'; '.join(facts)})"
    return TransientStorageError(fact, location=place, hint=refusals[0].hint)


def cut_short(location: str, path: str, received: int, expected: int) -> StorageError:
    """Return the error for an answer that ended before all announced bytes had come."""
    place = _place(location, path)
    fact = f"{place}: {received} of {expected} bytes came"
    return TransientStorageError(fact, location=place)


def _exception(answer: Response) -> dict[str, object]:
    try:
        described = answer.json()["RemoteException"]
    except (ValueError, KeyError, TypeError):
        return {}
    return described if isinstance(described, dict) else {}


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return redact(lines[0][:500]) if lines else ""


def _short(error: Exception) -> str:
    """Return the innermost of urllib3's errors: the outer ones' URL may hold a token."""
    text = str(_innermost(error))
    if ">: " in text:
        text = text.rpartition(": ")[2]
    return _line(f"{type(error).__name__}: {text}")


def _innermost(error: BaseException) -> BaseException:
    nested = getattr(error, "reason", None)
    if not nested and error.args:
        nested = error.args[0]
    return _innermost(nested) if isinstance(nested, BaseException) else error


def _host(answer: Response) -> str:
    return redact("/".join(str(answer.url).split("/")[:3]))


def _place(location: str, path: str) -> str:
    """Return the URL of a path, which is whole, from the root of the location's file system."""
    scheme, _, rest = location.partition("://")
    return redact(f"{scheme}://{rest.partition('/')[0]}{path}")
