"""S3, by two programs that share nothing: moto's server, in memory, and SeaweedFS, which keeps what
it is given.

What a client needs to use one is exported as Amazon's own tools, boto3 and s3fs read it:
AWS_ENDPOINT_URL_S3 and the credentials. With both up it is the real one's. Each has a bucket,
`stateshift`.

Both honour If-None-Match: * and If-Match on a put and on the end of a multipart upload, and
If-Match on a delete. Where they differ (moto 5.2, SeaweedFS 4.48): moto ignores If-None-Match on a
copy and takes any secret; SeaweedFS does and does not, as S3 does. moto by itself may let two win
one creation (moto_in_turn.py); it knows no key with a line break in it, and takes one that is
longer than S3's 1,024 bytes. SeaweedFS makes a slash of a backslash.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servers import asking, downloads
from servers.faults import Failed
from servers.place import NO, Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

KEY, SECRET, REGION = "stateshift", "stateshift-secret", "us-east-1"
BUCKET = "stateshift"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",  # no credentials are looked for elsewhere
}
PROVIDERS = {  # of credentials, by which Sparks of these versions take them from the environment
    "3.5": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "4.3": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
}
SOCKETS = Path("/tmp")
MOTO = downloads.HERE / "moto_in_turn.py"
VOLUME_SECONDS_MAX = 60.0


def spark_settings(environment: Mapping[str, str], version: str = "4.3") -> dict[str, str]:
    """Return a Spark's settings for the S3 that the environment names, and keeps the keys of."""
    s3a = {
        "endpoint": environment["AWS_ENDPOINT_URL_S3"],
        "endpoint.region": environment["AWS_DEFAULT_REGION"],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": PROVIDERS[version],
    }
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}


@dataclass(frozen=True)
class Moto(Server):
    name: str = "s3-moto"

    @property
    def ports(self) -> tuple[str, ...]:
        return ("s3",)

    def fetch(self) -> None:
        downloads.python()

    def configure(self, place: Place) -> None:
        return

    def stages(self, place: Place) -> tuple[Stage, ...]:
        port = place.ports["s3"]
        command = (str(downloads.python()), str(MOTO), HOST, str(port))
        return (
            Stage(
                (
                    Role(
                        "moto",
                        command,
                        lambda: asking.status(f"http://{HOST}:{port}/moto-api/") == 200,
                    ),
                )
            ),
        )

    def settle(self, place: Place) -> None:
        _made(self.name, asking.status(f"http://{HOST}:{place.ports['s3']}/{BUCKET}", "PUT"))

    def exports(self, place: Place) -> dict[str, str]:
        return _exports("STATESHIFT_S3_MOTO", place)


@dataclass(frozen=True)
class SeaweedFS(Server):
    name: str = "s3-real"

    @property
    def ports(self) -> tuple[str, ...]:
        return tuple(
            f"{part}{kind}"
            for part in ("master", "volume", "filer", "s3")
            for kind in ("", "-grpc")
        )

    def fetch(self) -> None:
        downloads.python()

    def configure(self, place: Place) -> None:
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": KEY, "credentials": credentials, "actions": actions}]
        place.write("conf/s3.json", json.dumps({"identities": identities}))

    def stages(self, place: Place) -> tuple[Stage, ...]:
        ports = place.ports
        numbers = [
            f"-{part}.port{kind.replace('-', '.')}={ports[part + kind]}"
            for part in ("master", "volume", "filer", "s3")
            for kind in ("", "-grpc")
        ]
        command = (
            str(downloads.python().with_name("weed")),
            "server",
            f"-dir={place.folder / 'data'}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-filer",
            "-s3",
            *numbers,
            f"-s3.config={place.folder / 'conf' / 's3.json'}",
            "-s3.iam=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-s3.allowDeleteBucketNotEmpty=false",
            "-master.electionTimeout=1s",  # 10 s else, before a server that was killed is back
            "-master.volumeSizeLimitMB=64",
            "-volume.max=0",
            "-volume.preStopSeconds=0",
        )
        ready = f"http://{HOST}:{ports['s3']}/healthz"
        return (Stage((Role("weed", command, lambda: asking.status(ready) == 200),)),)

    def settle(self, place: Place) -> None:
        """A volume can be written to: its servers find each other after they answer."""
        url = f"http://{HOST}:{place.ports['master']}/dir/assign"
        until = time.monotonic() + VOLUME_SECONDS_MAX
        while not _assigns(url):
            if time.monotonic() > until:
                raise Failed(
                    f"{self.name} has no volume; the end of its log:\n{place.end_of_log('weed')}"
                )
            time.sleep(0.2)
        # The folder is the bucket.
        _made(
            self.name,
            asking.status(f"http://{HOST}:{place.ports['filer']}/buckets/{BUCKET}/", "POST"),
        )

    def leavings(self, place: Place) -> tuple[Path, ...]:
        """Its parts talk over sockets that are named after their ports."""
        return tuple(
            socket
            for port in place.ports.values()
            for socket in SOCKETS.glob(f"seaweedfs-*-{port}.sock")
        )

    def exports(self, place: Place) -> dict[str, str]:
        return _exports("STATESHIFT_S3_REAL", place)


def _made(name: str, status: int) -> None:
    if status not in (200, 201, 409):  # 409: it is there
        raise Failed(f"{name} does not make the bucket {BUCKET}: HTTP {status}")


def _exports(name: str, place: Place) -> dict[str, str]:
    endpoint = f"http://{HOST}:{place.ports['s3']}"
    return {name: endpoint, "AWS_ENDPOINT_URL_S3": endpoint, **CREDENTIALS}


def _assigns(url: str) -> bool:
    try:
        return "fid" in asking.get_json(url)
    except NO:
        return False
