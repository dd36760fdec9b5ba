"""Asks an S3 server with Amazon's own client and prints what it answers: run in the servers'
Python.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

BUCKET, KEY = "checkpoints", os.environ["AWS_ACCESS_KEY_ID"]
OTHER = '"00000000000000000000000000000000"'


def main() -> None:
    s3 = boto3.client("s3", endpoint_url=sys.argv[1], config=Config(retries={"max_attempts": 1}))

    def put(key: str, body: bytes, **conditions: str) -> str:
        return answer(s3.put_object, Key=key, Body=body, **conditions)

    def upload(key: str, **conditions: str) -> str:
        number = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        part = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=number, PartNumber=1, Body=b"part")
        parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
        return answer(
            s3.complete_multipart_upload,
            Key=key,
            UploadId=number,
            MultipartUpload=parts,
            **conditions,
        )

    def held(key: str) -> str:
        return str(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode())

    said: dict[str, Any] = {"no bucket": put("a", b"1")}
    s3.create_bucket(Bucket=BUCKET)
    said["new"] = put("orders/0", b"first", IfNoneMatch="*")
    said["again"] = put("orders/0", b"second", IfNoneMatch="*")
    said["held"] = held("orders/0")
    tag = s3.head_object(Bucket=BUCKET, Key="orders/0")["ETag"]
    said["another's"] = put("orders/0", b"third", IfMatch=OTHER)
    said["ours"] = put("orders/0", b"third", IfMatch=tag)
    said["held then"] = held("orders/0")
    said["uploaded new"] = upload("orders/1", IfNoneMatch="*")
    said["uploaded again"] = upload("orders/1", IfNoneMatch="*")
    with ThreadPoolExecutor(8) as pool:
        said["race"] = sorted(
            pool.map(lambda n: put("orders/2", str(n).encode(), IfNoneMatch="*"), range(8))
        )
    said["listed"] = [
        one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix="orders/")["Contents"]
    ]
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "orders/0"})
    said["copied"] = held("copy")
    said["copied again"] = answer(
        s3.copy_object,
        Key="copy",
        CopySource={"Bucket": BUCKET, "Key": "orders/2"},
        IfNoneMatch="*",
    )
    stranger = boto3.client(
        "s3", endpoint_url=sys.argv[1], aws_access_key_id=KEY, aws_secret_access_key="wrong"
    )
    said["wrong secret"] = answer(stranger.put_object, Key="a", Body=b"1")
    print(json.dumps(said))


def answer(call: Any, **arguments: Any) -> str:
    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


main()
