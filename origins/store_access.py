"""Access to an object store: the URLs of its places, and the settings and credentials for them."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, SupportsIndex
from urllib.parse import quote, urlsplit

from origins.errors import WherryError
from origins.secret import CUT, EXCERPT, NotedValue, cut_text
from origins.spark_private import list_context_settings
from origins.spark_versions import find_parts, is_on_databricks

_NO_CONNECTOR = {
    r"S3AFileSystem not found|No FileSystem for scheme \"s3a\"": "hadoop-aws",
    r"AzureBlobFileSystem not found|No FileSystem for scheme \"abfss?\"": "hadoop-azure",
}
"""The errors of a Spark without the JARs for a store, with the name of the JAR."""
SCHEMES = ("s3", "s3a", "abfs", "abfss", "gs")
"""The schemes of the stores that Wherry can reach itself."""
_STORE = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
_UNUSABLE = re.compile(r"[^A-Za-z0-9._~/=@:+,-]")
"""The characters that may not occur below a bucket. Spark and `deltalake` would find different objects there, and so
would parts of `deltalake`."""
_SETTING = re.compile(r"(?:spark\.hadoop\.)?(fs\.(?:s3a|azure|gs)\..*|google\.cloud\.auth\..*)")
_SECRET = re.compile(
    r"secret(?:\.key)?\b|session\.token|account\.key|\bsas\.|private\.key|password|encryption\.key|refresh\.token"
)
_CENTRAL = re.compile(r"(?:https?://)?s3\.amazonaws\.com/?")
"""Amazon's endpoint for all regions. It does not identify the region of a bucket."""


class StoreError(WherryError):
    """An object store does not return or accept an object."""

    code = "STORE"
    is_of_here = False
    """Whether Spark may succeed instead: this process has no access, or cannot read an object's name."""


class StoreUrl(NotedValue, str):
    """A place in an object store. `settings` are Spark's. They may contain its credentials, and are not shown."""

    settings: Mapping[str, str]

    def __new__(cls, url: str, settings: Mapping[str, str] = MappingProxyType({})) -> StoreUrl:
        made = super().__new__(cls, canonicalise(url))
        made.settings = settings
        return made

    def __truediv__(self, name: str) -> StoreUrl:
        return StoreUrl(f"{self}/{name}", self.settings)

    def with_ending(self, ending: str) -> StoreUrl:
        """Return the place beside it whose name has this ending."""
        return StoreUrl(f"{self}{ending}", self.settings)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> StoreUrl:
        return StoreUrl(super().replace(old, new, count), self.settings)


def is_store_url(place: object) -> bool:
    """Return whether this is the URL of an object store that Wherry can reach itself."""
    return isinstance(place, str) and _STORE.match(place) is not None


def canonicalise(url: str) -> str:
    """Return the canonical URL of a place: `s3` becomes `s3a`, Spark's name for it.

    Text that is not a URL of a store is returned unchanged.
    """
    if not is_store_url(url):
        return url
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    bucket, _, path = rest.partition("/")
    key = "/".join(part for part in path.split("/") if part)
    return f"{'s3a' if scheme == 's3' else scheme}://{bucket}{'/' if key else ''}{key}"


def get_key(url: str) -> str:
    """Return the key of a place in its store."""
    return canonicalise(url).partition("://")[2].partition("/")[2]


def is_read_here(place: object) -> bool:
    """Return whether this process reads a place in a store itself, and uses Spark only if it is refused.

    Only Spark reads a place whose URL `deltalake` interprets differently.
    """
    return is_store_url(place) and not _find_unusable(str(place)) and is_driver_here()


def is_driver_here() -> bool:
    """Return whether this process knows all of Spark's settings for stores, because no other process is the driver."""
    return not is_on_databricks() and not any(os.environ.get(name) for name in _ELSEWHERE)


_ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""The variables that show that Spark's driver is another process. On Databricks it has separate rights."""


def _find_unusable(url: str) -> str:
    """Return the first character of the URL that Spark and `deltalake` interpret differently; empty without one."""
    found = _UNUSABLE.search(canonicalise(url).partition("://")[2])
    return found[0] if found else ""


def find_problem(url: str) -> str | None:
    """Return why Wherry cannot use a URL, as `expected …, got …` without a secret; None if it can."""
    parts, got = urlsplit(canonicalise(url)), f"got {_hide_secrets(url)}"
    before, at, _ = parts.netloc.rpartition("@")
    azure = parts.scheme.startswith("abfs")
    if not parts.hostname or (azure and not before):
        wanted = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER" if azure else "s3://BUCKET/FOLDER"
        return f"expected {wanted}, {got}"
    if ":" in before or (not azure and (at or ":" in parts.netloc)):
        hint = "put credentials and endpoints into the environment or `spark.conf`"
        return f"expected a URL without a user or a secret, {got}; {hint}"
    unusable = _find_unusable(url)
    if unusable:
        hint = "Spark and deltalake read it differently; use letters, digits and `-`"
        return f"expected a URL without {unusable!r}, {got}: {hint}"
    if not get_key(url):
        return f"expected a folder below the bucket, {got}; add /FOLDER"
    return None


def _hide_secrets(url: str) -> str:
    """Return the URL without the parts before an `@` and after a `?`, which may contain keys."""
    plain = re.split(r"[?#]", canonicalise(url))[0]
    return cut_text(re.sub(r"://.*@", f"://{CUT}@", plain), EXCERPT)


def suggest_connector(error: BaseException) -> str:
    """Return a remedy for an error of a Spark that lacks the JARs for a store; empty for any other error.

    The error may also be about a scheme that these JARs do not support.
    """
    text = str(error)
    if 'No FileSystem for scheme "s3"' in text:
        return "Spark knows this store as s3a. Write s3a:// instead of s3://"
    jar = next((jar for pattern, jar in _NO_CONNECTOR.items() if re.search(pattern, text)), "")
    package = f"org.apache.hadoop:{jar}:{find_parts().hadoop}"
    return f"This Spark lacks the JARs for the store. Start it with  --packages {package}" if jar else ""


def is_secret_setting(key: str) -> bool:
    """Return whether the Spark setting with this name contains the secret of a store."""
    return _SETTING.fullmatch(key) is not None and _SECRET.search(key) is not None


def get_options(place: object) -> dict[str, str] | None:
    """Return the options with which `deltalake` reaches a place; None for a place of this machine.

    The definition's Spark settings come first, then the settings of the running Spark, the environment, and a profile
    with keys. The store's library finds the rest, such as the role of an instance. Raise `StoreError` if the
    environment's session token would be used with keys from elsewhere.
    """
    if not is_store_url(place):
        return None
    url = canonicalise(str(place))
    given = {**list_context_settings(), **getattr(place, "settings", {})}
    settings = {
        match[1]: str(value)
        for key, value in given.items()
        if (match := _SETTING.fullmatch(key)) and not str(value).startswith("${secret:")  # unknown here
    }
    if url.startswith("s3a:"):
        return _make_s3_options(urlsplit(url).netloc, settings, os.environ)
    return _make_azure_options(url, settings) if url.startswith("abfs") else _make_google_options(settings)


def names_credentials(url: str) -> bool:
    """Return whether a setting, a variable or a file of this machine names credentials for a place in S3.

    They may be wrong. If nothing names any, only the machine itself can have a role. True for other stores.
    """
    if not canonicalise(url).startswith("s3a:"):
        return True
    settings = {**list_context_settings(), **getattr(url, "settings", {})}
    profile = _read_profile(os.environ)
    return (
        any(_NAMES_CREDENTIALS.fullmatch(key) for key in settings)
        or any(os.environ.get(name) for name in _CREDENTIALS)
        or any(_IN_PROFILE.fullmatch(key) for key in profile)
        or any(Path(os.environ.get(name) or "/dev/null", file).exists() for name, file in _FILES_OF_SPARK)
    )


_NAMES_CREDENTIALS = re.compile(
    r"(?:spark\.hadoop\.)?(?:fs\.s3a\..*(?:access\.key|credential|role|token).*|hadoop\.security\.credential\..*)"
)
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
_IN_PROFILE = re.compile(
    r"aws_access_key_id|credential_.*|sso_.*|role_arn|source_profile|web_identity_.*|login_session"
)
_FILES_OF_SPARK = (
    ("HADOOP_CONF_DIR", "core-site.xml"), ("SPARK_CONF_DIR", "core-site.xml"), ("SPARK_HOME", "conf/core-site.xml"),
    ("SPARK_CONF_DIR", "spark-defaults.conf"), ("SPARK_HOME", "conf/spark-defaults.conf"),
)  # fmt: skip
"""The files from which a Spark may read credentials: the variable with their folder, and the path in it."""


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
        raise StoreError(  # the libraries would take the token from the environment
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
    """Return the proxy in Hadoop's settings, with the user's name and password."""
    secure = find("proxy.ssl.enabled").lower() == "true"
    login = _make_login(find("proxy.username"), find("proxy.password"))
    port = find("proxy.port") or ("443" if find("connection.ssl.enabled").lower() != "false" else "80")
    return f"http{'s' * secure}://{login}{find('proxy.host')}:{port}"


def _make_login(user: str | None, password: str | None) -> str:
    return f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""


_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def _pick_keys(places: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the keys of the first place that has both, since keys of two places do not belong together."""
    whole = (keys for keys in places if all(keys[name] for name in _KEYS[:2]))
    return {name: value for name, value in next(whole, {}).items() if value}


def _find_endpoint(environ: Mapping[str, str]) -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((environ[name] for name in names if environ.get(name)), "")


def _find_region(endpoint: str) -> str:
    """Return the region in the name of one of Amazon's endpoints; empty if it has none."""
    match = re.search(r"\bs3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com", endpoint)
    return match[1] if match else ""


def _read_profile(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings of this user's profile in Amazon's files. A file that cannot be read is skipped."""
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
    """Return settings of S3 for a Spark with these settings, from variables of the environment that Hadoop ignores.

    They contain no secret. `here` means that Spark's executors are on this machine, where the profiles are.
    """
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

    tenant = re.search(r"//[^/]+/([^/]+)/oauth2/", find("account.oauth2.client.endpoint"))
    options = {
        "azure_storage_account_name": account,
        "azure_storage_account_key": find("account.key"),
        "azure_client_id": find("account.oauth2.client.id"),
        "azure_client_secret": find("account.oauth2.client.secret"),
        "azure_tenant_id": tenant[1] if tenant else "",
        "azure_storage_sas_key": find("sas.fixed.token"),
    }
    if endpoint := find("abfs.endpoint"):
        plain = find("always.use.https").lower() == "false"
        options["azure_storage_endpoint"] = f"{'http' if plain else 'https'}://{endpoint}/{account}"
        options["azure_allow_http"] = "true" if plain else ""
    return {name: value for name, value in options.items() if value}


def _make_google_options(settings: Mapping[str, str]) -> dict[str, str]:
    names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    file = next((settings[name] for name in names if settings.get(name)), "")
    options = {"google_service_account": file} if file else {}
    address = settings.get("fs.gs.proxy.address")
    if address:  # Google's connector uses plain HTTP with every proxy
        login = _make_login(settings.get("fs.gs.proxy.username"), settings.get("fs.gs.proxy.password"))
        options["proxy_url"] = f"http://{login}{address.rpartition('//')[2]}"
    return options


def make_client_arguments(url: str) -> dict[str, Any]:
    """Return the arguments of `obstore.store.from_url` for a place. They include the credentials of this process."""
    options = get_options(url) or {}
    client: dict[str, Any] = {"allow_http": True} if any(name.endswith("_allow_http") for name in options) else {}
    client |= {"proxy_url": options["proxy_url"]} if "proxy_url" in options else {}
    config = {name: value for name, value in options.items() if not re.search(r"_allow_http$|^proxy_url$", name)}
    if canonicalise(url).startswith("s3a:"):
        config["aws_copy_if_not_exists"] = "multipart"  # S3 has no other way to copy only to an unused key
    return {"url": str(canonicalise(url)), "config": config, "client_options": client}


def find_provider() -> dict[str, Any]:
    """Return a provider for the credentials of a profile without keys, if Amazon's library is installed."""
    if not os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}


def is_secret_option(name: str) -> bool:
    """Return whether an option of `get_options` with this name is a secret."""
    return re.search(r"secret|token|account_key|sas_key|proxy_url", name) is not None
