"""S3 servers as a user has them: named by the environment, or two at once by fsspec's
configuration.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.fsspec.storage import FsspecStorage
from tests.support.servers import Servers

BUCKET = "stateshift"  # each server has it
MOTO, REAL = "STATESHIFT_S3_MOTO", "STATESHIFT_S3_REAL"


@contextmanager
def exported(servers: Servers, which: str) -> Iterator[dict[str, str]]:
    """What `eval "$(./scripts/servers env)"` leaves, with one of the servers as the one that is
    asked.
    """
    environment = asking(servers, which)
    with pytest.MonkeyPatch.context() as here:
        for key, value in environment.items():
            here.setenv(key, value)
        forget()
        yield environment
        forget()


def asking(servers: Servers, which: str) -> dict[str, str]:
    exports = servers.exports()
    return {**exports, "AWS_ENDPOINT_URL_S3": exports[which]}


def forget() -> None:
    """fsspec keeps what it has opened: for another environment it opens anew."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()


def at(endpoint: str, place: str, **options: Any) -> FsspecStorage:
    return FsspecStorage.open(f"s3://{BUCKET}/{place}", endpoint_url=endpoint, **options)


def pending(endpoint: str, place: str = "") -> list[str]:
    """Below a place, the keys of multipart uploads that were begun and neither completed nor
    given up.
    """
    from s3fs import S3FileSystem

    found = S3FileSystem(endpoint_url=endpoint).list_multipart_uploads(BUCKET)
    return [str(upload["Key"]) for upload in found if str(upload["Key"]).startswith(place)]


def run(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A Python of its own that runs a script."""
    return subprocess.Popen(
        [sys.executable, *words], text=True, stdout=subprocess.PIPE, env=environment
    )


def configured(folder: Path, buckets: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """fsspec's configuration with options of buckets' own; what to set to have it read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(
        json.dumps({f"s3://{bucket}": own for bucket, own in buckets.items()})
    )
    return {"FSSPEC_CONFIG_DIR": str(folder)}


def make(endpoint: str, bucket: str) -> None:
    from s3fs import S3FileSystem

    S3FileSystem(endpoint_url=endpoint).mkdir(bucket)


def give_up(endpoint: str) -> None:
    """What a killed process has left, as a bucket's lifecycle rule does it."""
    from s3fs import S3FileSystem

    S3FileSystem(endpoint_url=endpoint).clear_multipart_uploads(BUCKET)
