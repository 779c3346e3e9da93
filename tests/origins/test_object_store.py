"""What names an object store, what gives access to it, and what is said when it fails."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
from pathlib import Path

import pytest
from pyspark import SparkContext

from origins import object_store
from origins.object_store import (
    HADOOP,
    ObjectStore,
    StoreError,
    StoreUrl,
    canonicalise,
    describe_store_error,
    find_problem,
    get_options,
    is_read_here,
    is_secret_setting,
    is_store_url,
    make_spark_settings,
    suggest_connector,
)
from tests.stores.s3 import S3

S3A = "spark.hadoop.fs.s3a."


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine says nothing about a store."""
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
        ("hdfs://n/a/", "hdfs://n/a/"),
    ],
)
def test_a_place_has_one_url(given: str, one: str) -> None:
    """Whichever of its names is given."""
    assert canonicalise(given) == one
    assert is_store_url(given) == (given[0] not in "/h")


@pytest.mark.parametrize("url", ["s3://b/a-b_c/day=1", "gs://b/a+b", "abfss://c@a.dfs.core.windows.net/x"])
def test_a_plain_prefix_is_taken(url: str) -> None:
    """In each kind of store."""
    assert find_problem(url) is None


@pytest.mark.parametrize(
    "url", ["s3://b/a b", "s3://b/ä", "s3://b/a%20b", "s3://b/a?b", "s3://b/a#b", "s3://b/[a]", "s3://", "s3://k:w@b/a"]
)
def test_a_url_that_spark_and_deltalake_read_differently_is_refused(url: str) -> None:
    """As is one with a secret, and one without a bucket."""
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
def test_what_is_refused_is_shown_without_a_secret(url: str, shown: str) -> None:
    """With what to do."""
    problem = str(find_problem(url))
    assert shown in problem
    assert not {"word", "wo/rd", "key"} & {*re.findall(r"[a-z/]+", problem)}


def test_settings_are_not_in_copies_of_a_url() -> None:
    """Only the URL itself leaves the process."""
    url = StoreUrl("s3://b/a", {f"{S3A}secret.key": "word"}) / "dlq"
    assert (url, copy.deepcopy(url).settings) == ("s3a://b/a/dlq", url.settings)
    assert b"word" not in pickle.dumps(url)
    assert "word" not in repr(url)


def test_settings_of_spark_give_access_to_s3() -> None:
    """Those of the bucket count more than those of all buckets; the endpoint says whether it is plain HTTP."""
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


def test_the_environment_gives_access_where_spark_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of two places are not mixed."""
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


def test_the_keys_of_one_place_are_not_used_with_the_token_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries would take it from the environment by themselves, and a store refuses an empty one."""
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


def test_a_spark_that_is_up_gives_access_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition's settings count more, and a secret that is not known here counts nothing."""
    up = {f"{S3A}access.key": "key", f"{S3A}secret.key": "word", f"{S3A}endpoint.region": "eu-west-1"}
    monkeypatch.setattr(object_store, "list_context_settings", lambda: up)
    given = {f"{S3A}endpoint.region": "eu-west-3", f"{S3A}secret.key": "${secret:WORD}"}
    assert get_options(StoreUrl("s3://b/a", given)) == {"aws_region": "eu-west-3"}
    assert get_options("s3://b/a") == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "word",
        "aws_region": "eu-west-1",
    }


def test_a_spark_is_asked_for_its_settings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them costs calls of the JVM, and every request to a store needs them."""
    asked: list[str] = []

    class Context:
        def __init__(self, region: str) -> None:
            self.region = region

        def getConf(self) -> Context:  # noqa: N802 -- pyspark's name
            return self

        def getAll(self) -> list[tuple[str, str]]:  # noqa: N802
            asked.append(self.region)
            return [(f"{S3A}endpoint.region", self.region)]

    def find_region() -> str:
        return (get_options("s3://b/a") or {})["aws_region"]

    first, second = Context("eu-west-1"), Context("eu-west-3")
    monkeypatch.setattr(SparkContext, "_active_spark_context", first)
    assert [find_region(), find_region()] == ["eu-west-1"] * 2
    monkeypatch.setattr(SparkContext, "_active_spark_context", second)
    assert (find_region(), asked) == ("eu-west-3", ["eu-west-1", "eu-west-3"])


@pytest.mark.parametrize(
    ("master", "remote", "here"),
    [("local[2]", "", True), ("spark://host:7077", "", False), ("local[2]", "sc://host", False)],
)
def test_a_spark_of_a_cluster_reads_what_is_in_a_store(
    monkeypatch: pytest.MonkeyPatch, master: str, remote: str, here: bool
) -> None:
    """It may have a right that this process has not."""
    monkeypatch.setenv("SPARK_REMOTE", remote)
    monkeypatch.setattr(object_store, "list_context_settings", lambda: {"spark.master": master})
    assert (is_read_here("s3://b/a"), is_read_here("/a")) == (here, False)


def test_a_profile_gives_access(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its keys and its region, and Spark is told to look there."""
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
def test_a_profile_takes_no_access_away_that_the_definition_gives(key: str) -> None:
    """A Spark that is told of a profile looks at nothing else."""
    assert make_spark_settings({key: "mine"}, {"AWS_PROFILE": "work"}) == {}


def test_executors_on_other_machines_are_told_of_no_profile() -> None:
    """They have none of that name."""
    assert make_spark_settings({}, {"AWS_PROFILE": "work"}, here=False) == {}


def test_an_endpoint_of_the_definition_is_asked_in_its_own_way() -> None:
    """What the environment's endpoint needs is not for that one; the region is."""
    given = {f"{S3A}endpoint": "https://store.example.com"}
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "eu-west-1"}
    assert make_spark_settings(given, environ) == {f"{S3A}endpoint.region": "eu-west-1"}


def test_settings_of_spark_give_access_to_azure() -> None:
    """An account's key, or an application's id, secret and tenant."""
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
def test_it_is_known_which_settings_are_secret(key: str, secret: bool) -> None:
    """Of those of stores."""
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
def test_what_a_store_says_is_put_in_plain_words(said: str, reason: str) -> None:
    """With what to do."""
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
def test_a_spark_that_lacks_the_jars_is_told_which(said: str, jar: str) -> None:
    """As an option of its start."""
    assert suggest_connector(OSError(said)).partition("org.apache.hadoop:")[2] == jar


def test_a_scheme_that_no_jar_brings_is_written_otherwise() -> None:
    """S3 is `s3a` for Spark, whatever JARs it has."""
    assert "s3a://" in suggest_connector(OSError('No FileSystem for scheme "s3"'))


def test_the_connectors_have_the_version_of_sparks_hadoop() -> None:
    """That in the JARs of pyspark."""
    pyspark = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
    assert [*pyspark.glob(f"jars/hadoop-client-api-{HADOOP}.jar")] != []


def test_an_unknown_error_is_said_without_the_secret() -> None:
    """In the store's own words."""
    url = StoreUrl("s3://b/a", {f"{S3A}access.key": "key", f"{S3A}secret.key": "sesame-open"})
    assert describe_store_error(OSError("odd: sesame-open\n\nDebug source: x"), url)[0] == (
        "odd: ${aws_secret_access_key}"
    )


def test_objects_are_listed_read_and_deleted_below_the_url(s3: S3) -> None:
    """A key is taken once."""
    store = ObjectStore(StoreUrl(s3.make_url("a b"), s3.spark_settings))
    assert [store.put_new(key, key.encode()) for key in ("x/1", "x/2", "y/1", "x/1")] == [True, True, True, False]
    assert [*store.list_pages("x")] == [["x/1", "x/2"]]
    assert [*store.list_pages("x", after="x/1")] == [["x/2"]]
    assert sorted(store.list_folders()) == ["x", "y"]
    store.delete_folder("x")
    store.delete(["x/1"])
    assert (store.exists("x/1"), store.exists("y/1"), store.read("y/1")) == (False, True, b"y/1")
    with pytest.raises(StoreError, match="cannot be read"):
        store.read("x/1")


def test_a_prefix_of_more_than_a_page_is_deleted_whole(s3: S3) -> None:
    """A listing has a thousand keys a page."""
    store = ObjectStore(StoreUrl(s3.make_url("many"), s3.spark_settings))
    written = [store.put_new(f"x/{number}", b"") for number in range(1_001)]
    store.delete_folder("x")
    assert (all(written), [*store.list_pages()]) == (True, [])
