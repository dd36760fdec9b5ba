"""What a file system of fsspec's is opened with: what its packages need to be told, then what the
user has configured, then what the caller gives. Each wins over the one before it.

    {"s3": {"endpoint_url": "http://minio:9000"}}                         fsspec's own: all of a scheme
    {"s3://archive": {"endpoint_url": "https://s3.west", "profile": "west"}}    ours: one bucket, by its location

Both stand in fsspec's configuration (~/.config/fsspec/*.json, or the folder FSSPEC_CONFIG_DIR
names). Two S3 services are reached in one run by the second: the location stays the one that the
job knows. (Two buckets of one name at two services are one location, and cannot be told apart.)
`config_kwargs` and `client_kwargs` are merged, everything else is replaced.

Only our own wrappers try again. What a package repeats by itself takes many minutes to give up
(s3fs five times what botocore does five times), and a creation whose answer was lost would be told
as somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final

_MERGED: Final = ("client_kwargs", "config_kwargs")

_NEEDED: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
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
    scheme: str, authority: str, configured: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """`configured` is fsspec's configuration. Who gets the options may write in them (botocore
    does in `retries`).
    """
    options: dict[str, Any] = {"use_listings_cache": False}
    shared = (
        _NEEDED.get(scheme, {}),
        configured.get(scheme, {}),
        configured.get(f"{scheme}://{authority}", {}),
    )
    own: tuple[Mapping[str, Any], ...] = (*deepcopy([dict(more) for more in shared]), given)
    for more in own:
        merged = {key: {**options.get(key, {}), **more[key]} for key in _MERGED if key in more}
        options = {**options, **more, **merged}
    return options


def try_once(file_system: Any) -> None:
    """s3fs has a second loop around botocore's, which is no option but an attribute."""
    if isinstance(getattr(file_system, "retries", None), int):
        file_system.retries = 1
