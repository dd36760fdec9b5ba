"""Options that a file system of fsspec's is opened with: what its packages need, then what the
user has configured, then what the caller gives. Each wins over the one before it.

    fsspec's own, all of a scheme      {"s3": {"endpoint_url": "http://minio:9000"}}
    ours, one bucket by its location   {"s3://archive": {"endpoint_url": "https://s3.west"}}

Both stand in fsspec's configuration (~/.config/fsspec/*.json, or the folder FSSPEC_CONFIG_DIR
names). Two S3 services are reached in one run by the second: the location stays the one that the
job knows. (Two buckets of one name at two services are one location, and cannot be distinguished.)
`config_kwargs` and `client_kwargs` are merged, everything else is replaced.

Only our own wrappers try again. What a package repeats by itself takes many minutes to give up
(s3fs five times what botocore does five times), and a creation whose answer was lost would look
like somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Final, TypeAlias

# Names and values as the packages document them.
Options: TypeAlias = Mapping[str, object]

_MERGED: Final = ("client_kwargs", "config_kwargs")

_NEEDED: Final[Mapping[str, Options]] = MappingProxyType(
    {
        "s3": {
            # One request at a time for a file: several are read at once by several threads, and
            # s3fs need not ask for a file's size before it reads it.
            "max_concurrency": 1,
            "config_kwargs": {"retries": {"total_max_attempts": 1}, "max_pool_connections": 64},
        }
    }
)


def options_for(
    scheme: str, authority: str, configured: Mapping[str, Options], given: Options
) -> dict[str, object]:
    """Return the options of one file system; `configured` is fsspec's configuration. They are
    copies: who gets them may write in them, as botocore does in `retries`.
    """
    shared = (
        _NEEDED.get(scheme, {}),
        configured.get(scheme, {}),
        configured.get(f"{scheme}://{authority}", {}),
    )
    options: dict[str, object] = {"use_listings_cache": False}
    for layer in shared:
        _overlay(options, deepcopy(dict(layer)))
    _overlay(options, given)
    return options


def _overlay(options: dict[str, object], layer: Options) -> None:
    """Put `layer` over the options: two mappings of one name become one, all else is replaced."""
    for name, value in layer.items():
        if name in _MERGED and isinstance(value, Mapping):
            options[name] = {**_mapping(options.get(name)), **value}
        else:
            options[name] = value


def _mapping(value: object) -> Options:
    return value if isinstance(value, Mapping) else {}


def try_once(file_system: object) -> None:
    """s3fs has a second loop around botocore's, which is no option but an attribute."""
    if isinstance(getattr(file_system, "retries", None), int):
        setattr(file_system, "retries", 1)  # noqa: B010  (no type has it)
