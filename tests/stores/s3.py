"""Amazon's S3 on this machine, behind a proxy that counts requests and injects faults."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.child import Child, clean_environment
from tests.stores.fault_proxy import FaultProxy, start_proxy

KEY, SECRET, REGION = "access", "secret", "us-east-1"


@dataclass(frozen=True)
class S3:
    """A bucket for one test. Requests to `endpoint` go through `proxy`, and requests to `behind` do not."""

    proxy: FaultProxy
    behind: str
    bucket: str

    @property
    def endpoint(self) -> str:
        """The URL of the proxy."""
        return self.proxy.endpoint

    def make_url(self, key: str = "", scheme: str = "s3a") -> str:
        """Return the URL of a key. The scheme is `s3a` for Spark and `s3` for deltalake."""
        return f"{scheme}://{self.bucket}/{key}"

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings for a Spark with the JARs."""
        return make_spark_settings(self.endpoint)

    @property
    def storage_options(self) -> dict[str, str]:
        """The options for deltalake. obstore takes the same names."""
        return make_storage_options(self.endpoint)


def make_spark_settings(endpoint: str) -> dict[str, str]:
    """Return the settings of a Spark for the S3 at this URL."""
    settings = {
        "endpoint": endpoint,
        "endpoint.region": REGION,
        "access.key": KEY,
        "secret.key": SECRET,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def make_storage_options(endpoint: str) -> dict[str, str]:
    """Return the options of deltalake and obstore for the S3 at this URL."""
    return {
        "aws_endpoint": endpoint,
        "aws_region": REGION,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


@contextlib.contextmanager
def start_s3(log: Path) -> Iterator[str]:
    """Start an S3 without buckets, and yield its URL."""
    server = Child([sys.executable, "-m", "tests.stores.moto_server"], log, clean_environment())
    try:
        yield f"http://127.0.0.1:{server.wait_for(r'port ([0-9]+)').group(1)}"
    finally:
        server.end()


def make_client(url: str) -> Any:
    """Return Amazon's client for the S3 at this URL."""
    import boto3

    return boto3.client("s3", endpoint_url=url, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET)


def make_bucket(url: str, bucket: str, *, versioned: bool = False) -> None:
    """Make a bucket. With `versioned`, it keeps every version of a key."""
    client = make_client(url)
    client.create_bucket(Bucket=bucket)
    if versioned:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One S3 for all tests, as its URL."""
    with start_s3(tmp_path_factory.mktemp("s3") / "moto.log") as url:
        yield url


@pytest.fixture
def s3(s3_server: str) -> Iterator[S3]:
    """An empty bucket behind a proxy, for one test."""
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    make_bucket(s3_server, bucket)
    with start_proxy(s3_server) as proxy:
        yield S3(proxy, s3_server, bucket)
