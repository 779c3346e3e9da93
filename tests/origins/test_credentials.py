"""What gives a pipeline access to S3, and that a run without any access says so before it starts Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from origins.object_store import check_credentials
from origins.store_access import StoreError, StoreUrl
from tests.child import WHERRY, clean_environment, run
from tests.pace import measure_pace

PLACE = "s3://bucket/in"


class Machine(BaseHTTPRequestHandler):
    """The metadata service of a machine, and an S3 that has no object."""

    role = "carrier"

    def do_PUT(self) -> None:
        """Answer the request for a token."""
        self._answer(200, "token")

    def do_GET(self) -> None:
        """Answer the request for the role or its keys, or for an object."""
        if self.path.rstrip("/").endswith("security-credentials"):
            self._answer(200 if self.role else 404, self.role)
        elif "meta-data" in self.path:
            later = datetime.now(timezone.utc) + timedelta(hours=1)
            keys = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Code": "Success", "Type": "AWS-HMAC"}
            times = {"LastUpdated": "2026-01-01T00:00:00Z", "Expiration": later.strftime("%Y-%m-%dT%H:%M:%SZ")}
            self._answer(200, json.dumps({**keys, **times}))
        else:
            self._answer(404, "")

    def do_HEAD(self) -> None:
        """Answer the request for an object."""
        self.do_GET()

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Roleless(Machine):
    """A machine without a role."""

    role = ""


def serve(kind: type[Machine]) -> Iterator[str]:
    """Yield the address of a metadata service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def machine() -> Iterator[str]:
    """The address of a machine with a role."""
    yield from serve(Machine)


@pytest.fixture
def roleless() -> Iterator[str]:
    """The address of a machine without a role."""
    yield from serve(Roleless)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any credentials, whose metadata service does not exist."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "HADOOP_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")


def test_a_place_without_credentials_is_refused() -> None:
    """The message names the bucket, and what was looked for."""
    with pytest.raises(
        StoreError, match=r"no credentials for s3a://bucket: no keys in .* no role of this machine"
    ) as it:
        check_credentials(PLACE)
    assert "Set AWS_ACCESS_KEY_ID" in (it.value.hint or "")


def test_a_machine_without_a_role_is_refused(roleless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata service answers, but has no keys."""
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", roleless)
    with pytest.raises(StoreError, match="no role of this machine"):
        check_credentials(PLACE)


def test_the_role_of_a_machine_is_enough(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has no such object, which says nothing about the role."""
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", machine)
    check_credentials(StoreUrl(PLACE, {"spark.hadoop.fs.s3a.endpoint": machine}))


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}, {}),
        ({"AWS_PROFILE": "mine"}, {}),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}, {}),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/keys"}, {}),
        ({}, {"spark.hadoop.fs.s3a.access.key": "${secret:KEY}"}),
        ({}, {"spark.hadoop.fs.s3a.bucket.bucket.access.key": "A"}),
        ({}, {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}),
        ({}, {"spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/keys"}),
    ],
)
def test_credentials_that_are_named_are_not_checked(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], settings: Mapping[str, str]
) -> None:
    """Spark or a library may know more about them than Wherry does."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    check_credentials(StoreUrl(PLACE, settings))


@pytest.mark.parametrize("key", ["aws_access_key_id", "sso_session", "role_arn", "credential_process"])
def test_the_default_profile_is_enough(tmp_path: Path, key: str) -> None:
    """It has keys, or names a source of keys."""
    (tmp_path / "home" / ".aws").mkdir(parents=True)
    (tmp_path / "home" / ".aws" / "config").write_text(f"[default]\nregion = eu-west-1\n{key} = x\n")
    check_credentials(PLACE)


@pytest.mark.parametrize("variable", ["HADOOP_CONF_DIR", "SPARK_CONF_DIR"])
def test_the_files_of_hadoop_may_have_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Only Spark reads them."""
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    monkeypatch.setenv(variable, str(tmp_path))
    check_credentials(PLACE)


@pytest.mark.parametrize("other", ["abfss://box@account.dfs.core.windows.net/in", "gs://bucket/in"])
def test_other_stores_are_not_asked(other: str) -> None:
    """They have credentials of other kinds."""
    check_credentials(other)


PARTS = {
    "the origin": ("run", "s3://bucket/in", "tables/t", "state"),
    "the destination": ("run", "in", "s3://bucket/t", "state"),
    "the state": ("preview", "in", "tables/t", "s3://bucket/state"),
}


@pytest.mark.parametrize(("command", "origin", "table", "state"), PARTS.values(), ids=PARTS)
def test_a_command_without_credentials_ends_before_spark_starts(
    tmp_path: Path, command: str, origin: str, table: str, state: str
) -> None:
    """It says within seconds what is missing."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n')
    (tmp_path / "p.yaml").write_text(
        f"name: p\norigin: {{files: {{path: '{origin}', format: json, schema: id long}}}}\n"
        f"stages: [{{filter: id > 0}}]\ndestinations: [{{delta: {{path: '{table}'}}}}]\nstate: '{state}'\n"
    )
    environment = clean_environment(HOME=str(tmp_path), AWS_METADATA_ENDPOINT="http://127.0.0.1:1")
    began = time.monotonic()
    ended = run([*WHERRY, command, str(tmp_path / "p.yaml")], environment)
    assert time.monotonic() - began < 8 * measure_pace()
    assert ended.returncode == 1, ended.stderr
    assert "There are no credentials for s3a://bucket" in ended.stderr
    assert "starting Spark" not in ended.stderr
