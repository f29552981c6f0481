"""Buckets of an S3 server that may still be starting: made, and checked by a write and a read.

python -m demo.buckets landing coset
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from partitioning.errors import CosetError, Unreachable
from partitioning.kinds import Kind

_READY_WITHIN_SECONDS = 60
_TRY_EVERY_SECONDS = 0.1


def wait_for_buckets(
    buckets: Sequence[str], environment: Mapping[str, str], is_running: Callable[[], bool] = lambda: True
) -> None:
    """Make missing buckets once the environment's server can be used.

    Raises Unreachable if that takes more than a minute, or the server ends.
    """
    client = _client(environment)
    deadline, said = time.monotonic() + _READY_WITHIN_SECONDS, "it was not asked"
    while time.monotonic() < deadline and is_running():
        try:
            _make_buckets(client, buckets)
        except (BotoCoreError, ClientError) as error:
            said = str(error)
            time.sleep(_TRY_EVERY_SECONDS)
        else:
            return
    where = environment["AWS_ENDPOINT_URL"]
    raise Unreachable.of(
        Kind.DEMO, f"the S3 server cannot be used: {said}", where, "read its log, then try again", address=where
    )


def _client(environment: Mapping[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10),
    )


def _make_buckets(client: Any, buckets: Sequence[str]) -> None:
    have = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in buckets:
        if bucket in have:
            # For some seconds after its start the server may write, but not yet read what it stored before.
            with suppress(client.exceptions.NoSuchKey):
                client.get_object(Bucket=bucket, Key=".ready")["Body"].read()
        else:
            client.create_bucket(Bucket=bucket)
        # The first write makes the volumes; without it, a reader may be answered before the server can write.
        client.put_object(Bucket=bucket, Key=".ready", Body=b"ready")


if __name__ == "__main__":
    try:
        wait_for_buckets(sys.argv[1:], os.environ)
    except CosetError as error:
        sys.exit(str(error))
