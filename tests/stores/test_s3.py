"""The S3 of the tests behaves like Amazon's where Spark, deltalake and obstore need it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.stores.s3 import KEY, REGION, S3, SECRET, make_bucket


@pytest.fixture
def client(s3: S3) -> Any:
    once = Config(retries={"total_max_attempts": 1}, max_pool_connections=16)
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    return boto3.client("s3", endpoint_url=s3.endpoint, config=once, **keys)


def find_status(call: Any, **asked: Any) -> int:
    try:
        answer = call(**asked)
    except ClientError as error:
        answer = error.response
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


def test_a_conditional_put_creates_a_key_once(s3: S3, client: Any) -> None:
    """Of eight requests at the same time, one succeeds."""
    with ThreadPoolExecutor(8) as pool:
        tried = [
            pool.submit(find_status, client.put_object, Bucket=s3.bucket, Key="a", Body=b"%d" % each, IfNoneMatch="*")
            for each in range(8)
        ]
    assert sorted(each.result() for each in tried) == [200, *[412] * 7]


def test_a_conditional_multipart_upload_creates_a_key_once(s3: S3, client: Any) -> None:
    """Of eight uploads at the same time, one succeeds."""
    place = {"Bucket": s3.bucket, "Key": "a"}

    def upload(_: int) -> int:
        upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
        part = client.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        return find_status(client.complete_multipart_upload, **upload, MultipartUpload=parts, IfNoneMatch="*")

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(upload, range(8))) == [200, *[412] * 7]


def test_a_key_is_replaced_only_if_its_etag_matches(s3: S3, client: Any) -> None:
    """A new content changes the ETag."""
    place = {"Bucket": s3.bucket, "Key": "a"}
    first = client.put_object(**place, Body=b"1")["ETag"]
    assert client.head_object(**place)["ETag"] == first
    assert find_status(client.put_object, **place, Body=b"2", IfMatch=first) == 200
    assert find_status(client.put_object, **place, Body=b"3", IfMatch=first) == 412
    assert client.get_object(**place)["Body"].read() == b"2"


def test_a_versioned_bucket_keeps_replaced_content(s3: S3, client: Any) -> None:
    """A deleted key can be created again."""
    bucket = f"{s3.bucket}-versioned"
    make_bucket(s3.behind, bucket, versioned=True)
    place = {"Bucket": bucket, "Key": "a"}
    first = client.put_object(**place, Body=b"1")["VersionId"]
    client.put_object(**place, Body=b"2")
    assert client.get_object(**place, VersionId=first)["Body"].read() == b"1"
    client.delete_object(**place)
    assert find_status(client.get_object, **place) == 404
    assert find_status(client.put_object, **place, Body=b"3", IfNoneMatch="*") == 200
