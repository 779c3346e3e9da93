"""How an object store is reached: the URLs of its places, and the settings and credentials that give access to them."""

from __future__ import annotations

import configparser
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, SupportsIndex
from urllib.parse import quote, urlsplit

from origins.errors import WherryError
from origins.secret import CUT, EXCERPT, cut_text
from origins.spark_private import list_context_settings

HADOOP = "3.5.0"
"""The version of Hadoop in Spark 4.2, and so that of its connectors to stores."""
_NO_CONNECTOR = {
    r"S3AFileSystem not found|No FileSystem for scheme \"s3a\"": "hadoop-aws",
    r"AzureBlobFileSystem not found|No FileSystem for scheme \"abfss?\"": "hadoop-azure",
}
"""What a Spark says that lacks the JARs for a store, and which they are."""
SCHEMES = ("s3", "s3a", "abfs", "abfss", "gs", "hdfs")
"""The schemes of the stores that Wherry itself can reach."""
_STORE = re.compile(rf"({'|'.join(SCHEMES)})://(?!(?<=hdfs://)/)", re.IGNORECASE)
"""A place in HDFS names its host: Spark alone knows which one is the default."""
_UNUSABLE = re.compile(r"[^A-Za-z0-9._~/=@:+,-]")
"""What may not stand below a bucket: Spark and `deltalake` would find different objects there, and so would parts of
`deltalake` itself."""
_SETTING = re.compile(r"(?:spark\.hadoop\.)?(fs\.(?:s3a|azure|gs)\..*|google\.cloud\.auth\..*)")
_HDFS_SETTING = re.compile(r"(?:spark\.hadoop\.)?(dfs\..*|fs\.(?:defaultFS|viewfs\..*)|hadoop\.(?:security|rpc)\..*)")
_HDFS_TRIES = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
}
"""How often a name node is asked. By default its library waits three minutes; Wherry waits for a store by itself."""
_SECRET = re.compile(
    r"secret(?:\.key)?\b|session\.token|account\.key|\bsas\.|private\.key|password|encryption\.key|refresh\.token"
)
_CENTRAL = re.compile(r"(?:https?://)?s3\.amazonaws\.com/?")
"""Amazon's endpoint for all regions, by which no single bucket's region is found."""


class StoreError(WherryError):
    """An object store does not give or take an object."""

    code = "STORE"
    is_of_here = False
    """Whether Spark may have an answer: this process has no access, or cannot read an object's name."""


class StoreUrl(str):
    """A place in an object store. `settings` are Spark's, in which its credentials may stand; they are not shown."""

    settings: Mapping[str, str]

    def __new__(cls, url: str, settings: Mapping[str, str] = MappingProxyType({})) -> StoreUrl:
        made = super().__new__(cls, canonicalise(url))
        made.settings = settings
        return made

    def __truediv__(self, name: str) -> StoreUrl:
        return StoreUrl(f"{self}/{name}", self.settings)

    def with_ending(self, ending: str) -> StoreUrl:
        """The place beside it whose name has this ending."""
        return StoreUrl(f"{self}{ending}", self.settings)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> StoreUrl:
        return StoreUrl(super().replace(old, new, count), self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> StoreUrl:
        return self


def is_store_url(place: object) -> bool:
    """Whether this is the URL of an object store that Wherry itself can reach. HDFS needs its library for that."""
    match = _STORE.match(place) if isinstance(place, str) else None
    return match is not None and (match[1].lower() != "hdfs" or _can_reach_hdfs())


@functools.cache
def _can_reach_hdfs() -> bool:
    return importlib.util.find_spec("hdfs_native") is not None


def canonicalise(url: str) -> str:
    """The one URL of a place: `s3` and `s3a` are one store, and Spark knows it as `s3a`. What is no URL stays."""
    if not is_store_url(url):
        return url
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    bucket, _, path = rest.partition("/")
    key = "/".join(part for part in path.split("/") if part)
    return f"{'s3a' if scheme == 's3' else scheme}://{bucket}{'/' if key else ''}{key}"


def get_key(url: str) -> str:
    """The key of a place in its store."""
    return canonicalise(url).partition("://")[2].partition("/")[2]


def is_read_here(place: object) -> bool:
    """Whether this process looks at a place in a store itself, and asks Spark only where it is refused. Spark alone
    reads a place that `deltalake` would look for elsewhere."""
    return is_store_url(place) and not _find_unusable(str(place)) and is_driver_here()


def is_driver_here() -> bool:
    """Whether this process knows all settings with which Spark reaches stores: its driver is no other process."""
    return not any(os.environ.get(name) for name in _ELSEWHERE)


_ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "DATABRICKS_RUNTIME_VERSION")
"""What says that Spark's driver is another process, or has rights of its own."""


def _find_unusable(url: str) -> str:
    """The first character of it that Spark and `deltalake` read differently."""
    found = _UNUSABLE.search(canonicalise(url).partition("://")[2])
    return found[0] if found else ""


def find_problem(url: str) -> str | None:
    """Why a URL can be no place of ours, as `expected …, got …` without a secret; None where it can."""
    parts, got = urlsplit(canonicalise(url)), f"got {_hide_secrets(url)}"
    before, at, _ = parts.netloc.rpartition("@")
    azure, hdfs = parts.scheme.startswith("abfs"), parts.scheme == "hdfs"
    if not parts.hostname or (azure and not before):
        wanted = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER" if azure else "s3://BUCKET/FOLDER"
        return f"expected {wanted}, {got}"
    if ":" in before or (not azure and (at or (":" in parts.netloc and not hdfs))):
        hint = "put credentials and endpoints into the environment or `spark.conf`"
        return f"expected a URL without a user or a secret, {got}; {hint}"
    unusable = _find_unusable(url)
    if unusable:
        hint = "Spark and deltalake read it differently; use letters, digits and `-`"
        return f"expected a URL without {unusable!r}, {got}: {hint}"
    if not canonicalise(url).partition("://")[2].partition("/")[2]:
        return f"expected a folder below the {'name node' if hdfs else 'bucket'}, {got}; add /FOLDER"
    return None


def _hide_secrets(url: str) -> str:
    """The URL without what is before an `@` and behind a `?`, which may hold keys."""
    plain = re.split(r"[?#]", canonicalise(url))[0]
    return cut_text(re.sub(r"://.*@", f"://{CUT}@", plain), EXCERPT)


def suggest_connector(error: BaseException) -> str:
    """What to do about an error of a Spark that lacks the JARs for a store, or is given a scheme that these do not
    bring; nothing for any other error."""
    text = str(error)
    if 'No FileSystem for scheme "s3"' in text:
        return "Spark knows this store as s3a. Write s3a:// instead of s3://"
    jar = next((jar for pattern, jar in _NO_CONNECTOR.items() if re.search(pattern, text)), "")
    package = f"org.apache.hadoop:{jar}:{HADOOP}"
    return f"This Spark lacks the JARs for the store. Start it with  --packages {package}" if jar else ""


def is_secret_setting(key: str) -> bool:
    """Whether a setting of Spark's with this name holds the secret of a store."""
    return _SETTING.fullmatch(key) is not None and _SECRET.search(key) is not None


def get_options(place: object) -> dict[str, str] | None:
    """What `deltalake` needs to reach a place; None for a place of this machine.

    The definition's settings of Spark count most, then those of the Spark that is up, then the environment, then a
    profile with keys. What none of them says the store's own library finds out, such as the role of an instance.
    Raises `StoreError` where a session token of the environment would go with the keys of another place.
    """
    if not is_store_url(place):
        return None
    url = canonicalise(str(place))
    given = {**list_context_settings(), **getattr(place, "settings", {})}
    pattern = _HDFS_SETTING if url.startswith("hdfs:") else _SETTING
    settings = {
        match[1]: str(value)
        for key, value in given.items()
        if (match := pattern.fullmatch(key)) and not str(value).startswith("${secret:")  # one that is not known here
    }
    if url.startswith("hdfs:"):
        return {**_HDFS_TRIES, **settings}
    if url.startswith("s3a:"):
        return _make_s3_options(urlsplit(url).netloc, settings, os.environ)
    return _make_azure_options(url, settings) if url.startswith("abfs") else _make_google_options(settings)


def _make_s3_options(bucket: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    def find(name: str) -> str:
        return settings.get(f"fs.s3a.bucket.{bucket}.{name}") or settings.get(f"fs.s3a.{name}") or ""

    profile = _read_profile(environ)
    options = _pick_keys(
        [
            {name: find(key) for name, key in zip(_KEYS, ("access.key", "secret.key", "session.token"), strict=True)},
            {name: environ.get(name.upper(), "") for name in _KEYS},
            {name: profile.get(name, "") for name in _KEYS},
        ]
    )
    if options and not options.get("aws_session_token") and environ.get("AWS_SESSION_TOKEN"):
        raise StoreError(  # the libraries would take it from the environment by themselves
            f"The keys for s3a://{bucket} in `spark.conf` or the profile have no session token, and the environment "
            "has one for other keys (AWS_SESSION_TOKEN).",
            hint="Run Wherry without it:  env -u AWS_SESSION_TOKEN wherry …",
        )
    endpoint = find("endpoint") or _find_endpoint(environ) or profile.get("endpoint_url", "")
    if endpoint and not _CENTRAL.fullmatch(endpoint):
        scheme = "http" if find("connection.ssl.enabled").lower() == "false" else "https"
        endpoint = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        options["aws_endpoint"] = endpoint.rstrip("/")
        if endpoint.startswith("http://"):
            options["aws_allow_http"] = "true"
    region = find("endpoint.region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    region = region or profile.get("region") or _find_region(endpoint)
    if region:
        options["aws_region"] = region
    if "AnonymousAWSCredentialsProvider" in find("aws.credentials.provider"):
        options["aws_skip_signature"] = "true"
    if find("proxy.host"):
        options["proxy_url"] = _make_proxy_url(find)
    return options


def _make_proxy_url(find: Callable[[str], str]) -> str:
    """The proxy of Hadoop's settings, with the user's name and password."""
    secure = find("proxy.ssl.enabled").lower() == "true"
    login = _make_login(find("proxy.username"), find("proxy.password"))
    port = find("proxy.port") or ("443" if find("connection.ssl.enabled").lower() != "false" else "80")
    return f"http{'s' * secure}://{login}{find('proxy.host')}:{port}"


def _make_login(user: str | None, password: str | None) -> str:
    return f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""


_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def _pick_keys(places: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The keys of the first place that has both: those of two places do not belong together."""
    whole = (keys for keys in places if all(keys[name] for name in _KEYS[:2]))
    return {name: value for name, value in next(whole, {}).items() if value}


def _find_endpoint(environ: Mapping[str, str]) -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((environ[name] for name in names if environ.get(name)), "")


def _find_region(endpoint: str) -> str:
    """The region that Amazon's own endpoints have in their names."""
    match = re.search(r"\bs3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com", endpoint)
    return match[1] if match else ""


def _read_profile(environ: Mapping[str, str]) -> Mapping[str, str]:
    """What Amazon's files say of the profile of this user; nothing where they cannot be read."""
    name, home = environ.get("AWS_PROFILE") or "default", Path(environ.get("HOME") or "~").expanduser() / ".aws"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(environ.get(variable) or home / file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        found.update(parser[section] if parser.has_section(section) else {})
    return found


def make_spark_settings(
    conf: Mapping[str, str], environ: Mapping[str, str] = os.environ, *, here: bool = True
) -> dict[str, str]:
    """What a Spark with these settings needs to know of S3 that the environment says and Hadoop does not ask there. No
    secret is in it. `here` says whether its executors are on this machine, where the profiles are."""
    settings = {}
    named = [match[1] for key in conf if (match := _SETTING.fullmatch(key))]
    endpoint, region = _find_endpoint(environ), environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint and "fs.s3a.endpoint" not in named:
        settings = {"endpoint": endpoint, "path.style.access": "true"}
        settings["connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    if region:
        settings["endpoint.region"] = region
    has_access = any(re.fullmatch(r"fs\.s3a\..*(?:access\.key|credentials\.provider)", name) for name in named)
    if here and not has_access and environ.get("AWS_PROFILE") and not environ.get("AWS_ACCESS_KEY_ID"):
        settings["aws.credentials.provider"] = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def _make_azure_options(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    host = urlsplit(url).hostname or ""
    account = host.partition(".")[0]

    def find(name: str) -> str:
        return settings.get(f"fs.azure.{name}.{host}") or settings.get(f"fs.azure.{name}") or ""

    options = {"azure_storage_account_name": account}
    named = {
        "azure_storage_account_key": find("account.key"),
        "azure_client_id": find("account.oauth2.client.id"),
        "azure_client_secret": find("account.oauth2.client.secret"),
        "azure_storage_sas_key": find("sas.fixed.token"),
    }
    tenant = re.search(r"//[^/]+/([^/]+)/oauth2/", find("account.oauth2.client.endpoint"))
    if tenant:
        options["azure_tenant_id"] = tenant[1]
    endpoint = find("abfs.endpoint")
    if endpoint:
        plain = find("always.use.https").lower() == "false"
        options["azure_storage_endpoint"] = f"{'http' if plain else 'https'}://{endpoint}/{account}"
        options |= {"azure_allow_http": "true"} if plain else {}
    return options | {name: value for name, value in named.items() if value}


def _make_google_options(settings: Mapping[str, str]) -> dict[str, str]:
    names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    file = next((settings[name] for name in names if settings.get(name)), "")
    options = {"google_service_account": file} if file else {}
    address = settings.get("fs.gs.proxy.address")
    if address:  # Google's connector speaks plain HTTP with every proxy
        login = _make_login(settings.get("fs.gs.proxy.username"), settings.get("fs.gs.proxy.password"))
        options["proxy_url"] = f"http://{login}{address.rpartition('//')[2]}"
    return options


def make_client_arguments(url: str) -> dict[str, Any]:
    """What `obstore.store.from_url` takes to reach a place. The credentials of this process are among it."""
    options = get_options(url) or {}
    client: dict[str, Any] = {"allow_http": True} if any(name.endswith("_allow_http") for name in options) else {}
    client |= {"proxy_url": options["proxy_url"]} if "proxy_url" in options else {}
    config = {name: value for name, value in options.items() if not re.search(r"_allow_http$|^proxy_url$", name)}
    if canonicalise(url).startswith("s3a:"):
        config["aws_copy_if_not_exists"] = "multipart"  # the one way of S3 to copy to a key that must be new
    return {"url": str(canonicalise(url)), "config": config, "client_options": client}


def find_provider() -> dict[str, Any]:
    """What finds the credentials of a profile without keys, by Amazon's own library if that is installed."""
    if not os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}


def is_secret_option(name: str) -> bool:
    """Whether an option of `get_options` with this name is a secret."""
    return re.search(r"secret|token|account_key|sas_key|proxy_url", name) is not None
