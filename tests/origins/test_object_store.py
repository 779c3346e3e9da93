"""URLs of object stores, the access to them, and the messages of their errors."""

from __future__ import annotations

import copy
import pickle
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from origins import spark_private, store_access
from origins.object_store import ObjectStore, describe_store_error, open_delta_table
from origins.spark_private import get_hadoop_settings
from origins.spark_versions import is_connect
from origins.store_access import (
    StoreError,
    StoreUrl,
    canonicalise,
    find_problem,
    get_options,
    is_read_here,
    is_secret_setting,
    is_store_url,
    make_client_arguments,
    make_spark_settings,
    suggest_connector,
)
from runners.pipeline import Pipeline
from tests.stores.s3 import S3

S3A = "spark.hadoop.fs.s3a."


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine gives access to a store."""
    for name in (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"),
        *("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_CONFIG_FILE"),
        "AWS_SHARED_CREDENTIALS_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ("s3://b/a/", "s3a://b/a"),
        ("S3A://b//a///c", "s3a://b/a/c"),
        ("abfss://c@a.dfs.core.windows.net/x/", "abfss://c@a.dfs.core.windows.net/x"),
        ("gs://b", "gs://b"),
        ("/data/s3://b", "/data/s3://b"),
        ("hdfs://n:9820//a/", "hdfs://n:9820//a/"),
    ],
)
def test_a_place_has_one_canonical_url(given: str, one: str) -> None:
    """Each of its spellings leads to this URL."""
    assert canonicalise(given) == one
    assert is_store_url(given) == (not given.startswith(("/", "hdfs:")))


@pytest.mark.parametrize(
    "url", ["s3://b/a b", "s3://b/ä", "s3://b/a%20b", "s3://b/a?b", "s3://b/a#b", "s3://b/[a]", "s3://", "s3://k:w@b/a"]
)
def test_a_url_that_spark_and_deltalake_read_differently_is_refused(url: str) -> None:
    """So is a URL with a secret, or without a bucket."""
    assert str(find_problem(url)).startswith("expected ")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:word@bucket/orders", "got s3a://…@bucket/orders; put credentials"),
        ("s3://key:wo/rd@bucket/orders", "got s3a://…@bucket/orders; put credentials"),
        ("abfss://c:word@acc.dfs.core.windows.net/x", "got abfss://…@acc.dfs.core.windows.net/x; put credentials"),
        ("s3://bucket/a b", "got s3a://bucket/a b: Spark and"),
        ("s3://bucket/a?sig=word", "got s3a://bucket/a: Spark and"),
        ("s3://bucket", "got s3a://bucket; add /FOLDER"),
    ],
)
def test_a_refused_url_is_shown_without_its_secret(url: str, shown: str) -> None:
    """The message has a remedy."""
    problem = str(find_problem(url))
    assert shown in problem
    assert not {"word", "wo/rd", "key"} & {*re.findall(r"[a-z/]+", problem)}


def test_settings_are_not_in_copies_of_a_url() -> None:
    """A pickled or printed URL shows no settings."""
    url = StoreUrl("s3://b/a", {f"{S3A}secret.key": "word"}) / "dlq"
    assert (url, copy.deepcopy(url).settings) == ("s3a://b/a/dlq", url.settings)
    assert b"word" not in pickle.dumps(url)
    assert "word" not in repr(url)


def test_settings_of_spark_give_access_to_s3() -> None:
    """A bucket's settings override general settings. A setting decides whether the endpoint uses plain HTTP."""
    settings = {
        f"{S3A}access.key": "other",
        f"{S3A}bucket.b.access.key": "key",
        "fs.s3a.secret.key": "word",
        f"{S3A}endpoint": "minio:9000",
        f"{S3A}connection.ssl.enabled": "false",
        f"{S3A}endpoint.region": "eu-central-1",
        "spark.sql.shuffle.partitions": "2",
    }
    assert get_options(StoreUrl("s3://b/a", settings)) == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "word",
        "aws_endpoint": "http://minio:9000",
        "aws_allow_http": "true",
        "aws_region": "eu-central-1",
    }


def test_the_environment_gives_access_where_spark_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of two sources are not mixed."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000/")
    options = get_options(StoreUrl("s3://b/a", {f"{S3A}access.key": "half"}))
    assert options == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "word",
        "aws_endpoint": "http://minio:9000",
        "aws_allow_http": "true",
    }
    assert make_spark_settings({}) == {
        f"{S3A}endpoint": "http://minio:9000/",
        f"{S3A}path.style.access": "true",
        f"{S3A}connection.ssl.enabled": "false",
    }


def test_the_keys_of_one_source_are_not_used_with_the_token_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries would take the token from the environment, and a store refuses an empty token."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    settings = {f"{S3A}access.key": "key", f"{S3A}secret.key": "word"}
    with pytest.raises(StoreError, match=r"keys for s3a://b .* have no session token") as refused:
        get_options(StoreUrl("s3://b/a", settings))
    assert "AWS_SESSION_TOKEN" in refused.value.hint
    assert get_options(StoreUrl("s3://b/a", {**settings, f"{S3A}session.token": "mine"})) == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "word",
        "aws_session_token": "mine",
    }


def test_a_running_spark_gives_access_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition's settings override it. A secret that is unknown here has no effect."""
    up = {f"{S3A}access.key": "key", f"{S3A}secret.key": "word", f"{S3A}endpoint.region": "eu-west-1"}
    monkeypatch.setattr(store_access, "list_context_settings", lambda: up)
    given = {f"{S3A}endpoint.region": "eu-west-3", f"{S3A}secret.key": "${secret:WORD}"}
    assert get_options(StoreUrl("s3://b/a", given)) == {"aws_region": "eu-west-3"}
    assert get_options("s3://b/a") == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "word",
        "aws_region": "eu-west-1",
    }


def test_a_spark_is_asked_for_its_settings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question needs calls to the JVM, and every request to a store needs the settings."""
    asked: list[str] = []

    monkeypatch.setattr(spark_private, "_list_hadoop_settings", lambda _: ({}, {}))
    first, second = Context("eu-west-1", asked), Context("eu-west-3", asked)
    monkeypatch.setattr(SparkContext, "_active_spark_context", first)
    assert [find_region(), find_region()] == ["eu-west-1"] * 2
    monkeypatch.setattr(SparkContext, "_active_spark_context", second)
    assert (find_region(), asked) == ("eu-west-3", ["eu-west-1", "eu-west-3"])


class Context:
    """A double of PySpark's context with this region, which records each question."""

    _jsc: Any = object()

    def __init__(self, region: str, asked: list[str]) -> None:
        self.region, self.asked = region, asked

    def getConf(self) -> Context:  # noqa: N802 -- pyspark's name
        return self

    def getAll(self) -> list[tuple[str, str]]:  # noqa: N802
        self.asked.append(self.region)
        return [(f"{S3A}endpoint.region", self.region)]


def find_region() -> str | None:
    """Return the region in the settings of this process."""
    return (get_options("s3://b/a") or {}).get("aws_region")


def test_a_spark_that_another_thread_is_starting_has_no_settings_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark has a context without a JVM for some seconds. Reaching a store must not fail then."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    context = Context("eu-west-1", [])
    context._jsc = None
    monkeypatch.setattr(spark_private, "_list_hadoop_settings", lambda each: ({"fs.a": str(each._jsc.is_up)}, {}))
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert find_region() is None
    context._jsc = SimpleNamespace(is_up=True)
    assert find_region() == "eu-west-1"


@pytest.mark.parametrize("error", [Py4JError("not whitelisted"), TypeError("'JavaPackage' object is not callable")])
def test_the_settings_of_spark_remain_if_hadoop_is_hidden_from_python(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Some Databricks clusters hide it."""
    context = Context("eu-west-1", [])
    context._jsc = Mock(hadoopConfiguration=Mock(side_effect=error))
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert find_region() == "eu-west-1"


def test_hadoop_settings_that_a_program_changes_apply_from_then_on(spark: SparkSession, tmp_path: Path) -> None:
    """A notebook may change them between two runs. They override the settings with which Spark was started."""
    if is_connect(spark):
        pytest.skip("the driver of Spark Connect is another process")
    file, hadoop = tmp_path / "orders.yaml", get_hadoop_settings(spark)
    file.write_text("name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{memory: {}}]\n")
    assert get_options("s3://own/a") == {}
    given = {"fs.s3a.bucket.own.endpoint": "http://host:9000", "fs.s3a.bucket.own.access.key": "mine"}
    given["fs.s3a.bucket.own.secret.key"] = "word"
    try:
        for name, value in given.items():
            hadoop.set(name, value)
        Pipeline.load(file).run()
        assert get_options("s3://own/a") == {
            "aws_endpoint": "http://host:9000",
            "aws_allow_http": "true",
            "aws_access_key_id": "mine",
            "aws_secret_access_key": "word",
        }
    finally:
        for name in given:
            hadoop.unset(name)
        spark_private.forget_context_settings()


@pytest.mark.parametrize(("remote", "here"), [("", True), ("sc://host", False)])
def test_a_spark_whose_driver_is_elsewhere_reads_the_store_itself(
    monkeypatch: pytest.MonkeyPatch, remote: str, here: bool
) -> None:
    """This process then does not know the settings with which Spark reaches the store."""
    monkeypatch.setenv("SPARK_REMOTE", remote)
    assert (is_read_here("s3://b/a"), is_read_here("/a")) == (here, False)


def test_a_store_is_reached_through_the_proxy_in_hadoops_settings(s3: S3) -> None:
    """This holds for objects, tables and the clock. Without the proxy the endpoint cannot be reached."""
    host, port = s3.endpoint.removeprefix("http://").split(":")
    given = {"endpoint": "http://localhost:1", "proxy.host": host, "proxy.port": port}
    url = StoreUrl(s3.make_url("a"), {**s3.spark_settings, **{f"{S3A}{name}": each for name, each in given.items()}})
    store = ObjectStore(url)
    store.put_new("b", b"c")
    assert (store.read("b"), store.read_clock() > 0) == (b"c", True)
    deltalake.write_deltalake(str(url / "t"), pa.table({"n": [1]}), storage_options=get_options(url))
    table = open_delta_table(url / "t")
    assert table is not None
    assert table.version() == 0


@pytest.mark.parametrize(
    ("given", "proxy"),
    [
        ({}, "http://proxy:443"),
        ({"connection.ssl.enabled": "false"}, "http://proxy:80"),
        ({"proxy.port": "3128", "proxy.ssl.enabled": "true"}, "https://proxy:3128"),
        ({"proxy.port": "3128", "proxy.username": "me", "proxy.password": "p@:/"}, "http://me:p%40%3A%2F@proxy:3128"),
    ],
)
def test_a_proxy_is_read_from_the_s3_settings_of_hadoop(given: dict[str, str], proxy: str) -> None:
    """Its URL contains the password, so the URL is hidden in messages."""
    settings = {f"{S3A}{name}": value for name, value in {**given, "proxy.host": "proxy"}.items()}
    url = StoreUrl("s3://b/a", settings)
    assert get_options(url) == {"proxy_url": proxy}
    assert describe_store_error(OSError(f"cannot connect to {proxy}/x"), url)[0] == "cannot connect to ${proxy_url}/x"


@pytest.mark.parametrize(
    ("given", "proxy"),
    [
        ({"address": "proxy:3128"}, "http://proxy:3128"),
        ({"address": "http://proxy:3128"}, "http://proxy:3128"),
        ({"address": "https://proxy:3128"}, "http://proxy:3128"),
        ({"address": "proxy:3128", "username": "me", "password": "p@:/"}, "http://me:p%40%3A%2F@proxy:3128"),
    ],
)
def test_a_proxy_for_google_is_read_from_the_settings_of_its_connector(given: dict[str, str], proxy: str) -> None:
    """It is used for objects and tables, and its URL is hidden in messages."""
    url = StoreUrl("gs://b/a", {f"spark.hadoop.fs.gs.proxy.{name}": value for name, value in given.items()})
    assert get_options(url) == {"proxy_url": proxy}
    assert make_client_arguments(url)["client_options"] == {"proxy_url": proxy}
    assert describe_store_error(OSError(f"cannot connect to {proxy}/x"), url)[0] == "cannot connect to ${proxy_url}/x"


def test_googles_clock_is_asked_through_the_proxy() -> None:
    """A proxy that refuses the connection sees the name of the server."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(refuse_one_request, server)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        url = StoreUrl("gs://b/a", {"spark.hadoop.fs.gs.proxy.address": address})
        with pytest.raises(StoreError):
            ObjectStore(url).read_clock()
        assert asked.result(30).startswith("CONNECT storage.googleapis.com:443 ")


def refuse_one_request(server: socket.socket) -> str:
    """Refuse a request, and return its first line."""
    server.settimeout(30)
    connection, _ = server.accept()
    with connection:
        first = connection.recv(1_000).decode().splitlines()[0]
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        return first


def test_a_profile_gives_access(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It gives keys and a region, and Spark is set to use it."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("[profile work]\nregion = eu-west-1\n[default]\nregion = us-east-2\n")
    (tmp_path / ".aws/credentials").write_text("[work]\naws_access_key_id = key\naws_secret_access_key = wo%rd\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert get_options("s3://b/a") == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "wo%rd",
        "aws_region": "eu-west-1",
    }
    assert list(make_spark_settings({})) == [f"{S3A}aws.credentials.provider"]


@pytest.mark.parametrize(
    "key", [f"{S3A}access.key", f"{S3A}bucket.b.access.key", "fs.s3a.access.key", f"{S3A}aws.credentials.provider"]
)
def test_a_profile_does_not_replace_the_access_in_a_definition(key: str) -> None:
    """A Spark that uses a profile ignores all other access."""
    assert make_spark_settings({key: "mine"}, {"AWS_PROFILE": "work"}) == {}


def test_executors_on_other_machines_get_no_profile() -> None:
    """They have no profile with that name."""
    assert make_spark_settings({}, {"AWS_PROFILE": "work"}, here=False) == {}


def test_an_endpoint_of_the_definition_ignores_settings_for_another() -> None:
    """Settings for the environment's endpoint do not apply to it. The region does."""
    given = {f"{S3A}endpoint": "https://store.example.com"}
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "eu-west-1"}
    assert make_spark_settings(given, environ) == {f"{S3A}endpoint.region": "eu-west-1"}


def test_settings_of_spark_give_access_to_azure() -> None:
    """They are an account's key, or an application's id, secret and tenant."""
    host = "acc.dfs.core.windows.net"
    url = f"abfss://c@{host}/x"
    assert get_options(StoreUrl(url, {f"spark.hadoop.fs.azure.account.key.{host}": "word"})) == {
        "azure_storage_account_name": "acc",
        "azure_storage_account_key": "word",
    }
    application = {
        f"fs.azure.account.oauth2.client.id.{host}": "id",
        f"fs.azure.account.oauth2.client.secret.{host}": "word",
        f"fs.azure.account.oauth2.client.endpoint.{host}": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    assert get_options(StoreUrl(url, application)) == {
        "azure_storage_account_name": "acc",
        "azure_client_id": "id",
        "azure_client_secret": "word",
        "azure_tenant_id": "tenant",
    }


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        (f"{S3A}secret.key", True),
        (f"{S3A}bucket.b.session.token", True),
        ("fs.azure.account.key.acc.dfs.core.windows.net", True),
        ("spark.hadoop.fs.azure.account.oauth2.client.secret", True),
        ("spark.hadoop.fs.azure.sas.fixed.token.acc", True),
        (f"{S3A}access.key", False),
        (f"{S3A}endpoint", False),
        ("spark.some.secret.key", False),
    ],
)
def test_settings_of_stores_that_are_secret_are_known(key: str, secret: bool) -> None:
    """Settings that do not belong to a store are not secret."""
    assert is_secret_setting(key) == secret


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("404 <Error><Code>NoSuchBucket</Code></Error>", "the bucket b does not exist"),
        ("<Code>ContainerNotFound</Code>", "the bucket b does not exist"),
        (
            "400 <Code>AuthorizationHeaderMalformed</Code>the region 'us-east-1' is wrong; expecting 'eu-west-1'",
            "the bucket b is in eu-west-1, not in us-east-1",
        ),
        ("<Code>PermanentRedirect</Code>", "the bucket b is in another region, not in us-east-1"),
        ("403 <Code>RequestTimeTooSkewed</Code>", "the clock of this machine differs too much from the store's"),
        ("<Code>SignatureDoesNotMatch</Code>", "the store does not accept the credentials (SignatureDoesNotMatch)"),
        ("403 Forbidden: <Code>AccessDenied</Code>", "these credentials have no right to do that in b (AccessDenied)"),
        ("GET http://host:9/b in 1s - error sending request", "http://host:9 does not answer"),
        ("an error occurred while loading credentials: IMDS is disabled", "there are no credentials"),
        ("PUT http://169.254.169.254/latest/api/token error sending request", "there are no credentials"),
        (
            "AccessDeniedException: Access Denied (Service: S3, Status Code: 403, Request ID: r):AccessDenied",
            "these credentials have no right to do that in b (AccessDenied)",
        ),
        ("503 <Code>SlowDown</Code>", "the store is too busy (SlowDown)"),
    ],
)
def test_an_error_of_a_store_is_described_in_plain_words(said: str, reason: str) -> None:
    """The description has a remedy."""
    found = describe_store_error(OSError(said), "s3://b/a")
    assert (found[0], bool(found[1])) == (reason, True)


@pytest.mark.parametrize(
    ("said", "jar"),
    [
        ("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "hadoop-aws:3.5.0"),
        ('No FileSystem for scheme "abfss"', "hadoop-azure:3.5.0"),
        ("the table is missing", ""),
    ],
)
def test_a_missing_jar_is_named(said: str, jar: str) -> None:
    """The message has it as an option for starting Spark."""
    assert suggest_connector(OSError(said)).partition("org.apache.hadoop:")[2] == jar


def test_an_unknown_error_is_shown_without_the_secret() -> None:
    """The rest of the text remains."""
    url = StoreUrl("s3://b/a", {f"{S3A}access.key": "key", f"{S3A}secret.key": "sesame-open"})
    assert describe_store_error(OSError("odd: sesame-open\n\nDebug source: x"), url)[0] == (
        "odd: ${aws_secret_access_key}"
    )


def test_objects_are_listed_read_and_deleted_below_the_url(s3: S3) -> None:
    """A key can be created only once."""
    store = ObjectStore(StoreUrl(s3.make_url("a b"), s3.spark_settings))
    for key in ("x/1", "x/2", "y/1", "x/1"):
        store.put_new(key, key.encode())
    with pytest.raises(StoreError, match="x/1 has other content already"):
        store.put_new("x/1", b"other")
    assert [*store.list_pages("x")] == [["x/1", "x/2"]]
    assert [*store.list_pages("x", after="x/1")] == [["x/2"]]
    assert sorted(store.list_folder()[0]) == ["x", "y"]
    store.delete_folder("x")
    store.delete(["x/1"])
    assert (store.exists("x/1"), store.exists("y/1"), store.read("y/1")) == (False, True, b"y/1")
    with pytest.raises(StoreError, match="cannot be read"):
        store.read("x/1")


def test_a_prefix_with_more_than_a_page_of_keys_is_deleted_completely(s3: S3) -> None:
    """A page of a listing has a thousand keys."""
    store = ObjectStore(StoreUrl(s3.make_url("many"), s3.spark_settings))
    written = [store.claim(f"x/{number}") for number in range(1_001)]
    store.delete_folder("x")
    assert (all(written), [*store.list_pages()]) == (True, [])
