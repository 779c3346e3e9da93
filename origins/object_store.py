"""Object stores: which URLs name one, what gives access to it, its objects, and its errors in plain words."""

from __future__ import annotations

import configparser
import contextlib
import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex
from urllib.parse import urlsplit

from origins.errors import WherryError
from origins.lazy import pa, pc
from origins.secret import CUT, EXCERPT, cut_text, make_mask
from origins.spark_private import list_context_settings

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from obstore.store import ObjectStore as Client

HADOOP = "3.5.0"
"""The version of Hadoop in Spark 4.2, and so that of its connectors to stores."""
_NO_CONNECTOR = {
    r"S3AFileSystem not found|No FileSystem for scheme \"s3a\"": "hadoop-aws",
    r"AzureBlobFileSystem not found|No FileSystem for scheme \"abfss?\"": "hadoop-azure",
}
"""What a Spark says that lacks the JARs for a store, and which they are."""
SCHEMES = ("s3", "s3a", "abfs", "abfss", "gs")
"""The schemes of the stores that Wherry itself can reach."""
_STORE = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
_UNUSABLE = re.compile(r"[^A-Za-z0-9._~/=@:+,-]")
"""What may not stand below a bucket: Spark and `deltalake` would find different objects there, and so would parts of
`deltalake` itself."""
_SETTING = re.compile(r"(?:spark\.hadoop\.)?(fs\.(?:s3a|azure|gs)\..*|google\.cloud\.auth\..*)")
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
    """Whether this is the URL of an object store that Wherry itself can reach."""
    return isinstance(place, str) and _STORE.match(place) is not None


def canonicalise(url: str) -> str:
    """The one URL of a place: `s3` and `s3a` are one store, and Spark knows it as `s3a`. What is no URL stays."""
    if not is_store_url(url):
        return url
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    bucket, _, path = rest.partition("/")
    key = "/".join(part for part in path.split("/") if part)
    return f"{'s3a' if scheme == 's3' else scheme}://{bucket}{'/' if key else ''}{key}"


def is_read_here(place: object) -> bool:
    """Whether a place in a store is read by this process rather than by Spark, which on a cluster may have a right that
    this process has not. Spark alone reads a place that `deltalake` would look for elsewhere."""
    return is_store_url(place) and not _find_unusable(str(place)) and is_spark_here()


def is_spark_here() -> bool:
    """Whether Spark works on this machine only, as far as this process knows."""
    elsewhere = any(os.environ.get(name) for name in _ELSEWHERE)
    return not elsewhere and list_context_settings().get("spark.master", "local").startswith("local")


_ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "DATABRICKS_RUNTIME_VERSION")
"""What says that this process speaks to a Spark somewhere else."""


def _find_unusable(url: str) -> str:
    """The first character of it that Spark and `deltalake` read differently."""
    found = _UNUSABLE.search(canonicalise(url).partition("://")[2])
    return found[0] if found else ""


def find_problem(url: str) -> str | None:
    """Why a URL can be no place of ours, as `expected …, got …` without a secret; None where it can."""
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
    if not canonicalise(url).partition("://")[2].partition("/")[2]:
        return f"expected a folder below the bucket, {got}; add /FOLDER"
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
    settings = {
        match[1]: str(value)
        for key, value in given.items()
        if (match := _SETTING.fullmatch(key)) and not str(value).startswith("${secret:")  # one that is not known here
    }
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
    return options


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
    return {"google_service_account": file} if file else {}


def open_delta_table(place: Path | str) -> DeltaTable | None:
    """The Delta table in a folder or in an object store, through `deltalake`; None where there is none. Raises
    `StoreError` where a store does not answer well."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if not is_store_url(place):
        return DeltaTable(str(place)) if os.path.exists(place) else None
    try:
        return DeltaTable(canonicalise(str(place)), storage_options=get_options(place))
    except TableNotFoundError:
        return None
    except OSError as error:
        raise make_store_error(error, canonicalise(str(place)), "cannot be read") from error
    except DeltaError as error:
        if is_store_away(error):
            raise make_store_error(error, canonicalise(str(place)), "cannot be read") from error
        raise


def make_store_error(error: Exception, place: str, what: str) -> StoreError:
    """The error for a store that refuses something, or is away."""
    reason, hint = describe_store_error(error, place)
    made = StoreError(f"{place} {what}: {reason}.", hint=hint, is_away=is_store_away(error))
    made.is_of_here = re.search("|".join(_OF_HERE), str(error)) is not None
    return made


def make_client_arguments(url: str) -> dict[str, Any]:
    """What `obstore.store.from_url` takes to reach a place. The credentials of this process are among it."""
    options = get_options(url) or {}
    plain = [name for name in options if name.endswith("_allow_http")]
    config = {name: value for name, value in options.items() if name not in plain}
    if canonicalise(url).startswith("s3a:"):
        config["aws_copy_if_not_exists"] = "multipart"  # the one way of S3 to copy to a key that must be new
    client = {"allow_http": True} if plain else {}
    return {"url": str(canonicalise(url)), "config": config, "client_options": client}


class StoredObject(NamedTuple):
    """One object as it was found."""

    key: str
    modified: int
    """Milliseconds since 1970 by the store's clock. A listing may have parts of a second; other answers have none."""
    size: int


class ObjectStore:
    """The objects below a URL, by their keys from there. Raises `StoreError` where the store does not answer well."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            from obstore.store import from_url
        except ImportError as error:
            raise StoreError(
                f"{url} is in an object store, and the library for these is not installed.",
                hint='Install it with:  pip install "wherry[stores]"',
            ) from error
        arguments = make_client_arguments(url)
        config = arguments["config"]
        provider = {} if "aws_access_key_id" in config or not url.startswith("s3") else _find_provider()
        self._client: Client = from_url(**arguments, **provider)

    def list_pages(self, folder: str = "", after: str = "") -> Iterator[list[str]]:
        """The keys of all objects in a folder, at any depth, in pages; with `after` those that sort behind it."""
        for page in self.list_objects(folder, after):
            yield [found.key for found in page]

    def list_folders(self, folder: str = "") -> list[str]:
        """The folders right in a folder."""
        return self.list_folder(folder)[0]

    def list_folder(self, folder: str = "") -> tuple[list[str], list[StoredObject]]:
        """The folders and the objects right in a folder. An empty object that marks a folder looks like any other."""
        with self._name_errors("listed"):
            found = self._client.list_with_delimiter(folder or None, return_arrow=True)
            return list(found["common_prefixes"]), _read_page(found["objects"])

    @property
    def is_sorted(self) -> bool:
        """Whether a listing is in the order of its keys, and begins behind any key without a look at those before."""
        url = canonicalise(self.url)
        return url.startswith("s3a:") and not urlsplit(url).netloc.endswith("--x-s3")

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[list[StoredObject]]:
        """The objects in a folder, at any depth, in pages; with `after` those that sort behind it."""
        with self._name_errors("listed"):
            for page in self._client.list(folder or None, offset=after or None, chunk_size=_PAGE, return_arrow=True):
                yield _read_page(page)

    def find(self, key: str) -> StoredObject | None:
        """The object with this key as it is now; None where there is none."""
        with self._name_errors("read"):
            try:
                return _describe_object(self._client.head(key))
            except FileNotFoundError:
                return None

    def exists(self, key: str) -> bool:
        """Whether there is an object with this key."""
        return self.find(key) is not None

    def read_object(self, key: str) -> tuple[StoredObject, bytes] | None:
        """The object with what is in it, both of one moment; None where there is none."""
        with self._name_errors("read"):
            try:
                found = self._client.get(key)
                return _describe_object(found.meta), bytes(found.bytes())
            except FileNotFoundError:
                return None

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` to before `end`, of which there is one at least."""
        with self._name_errors("read"):
            return bytes(self._client.get_range(key, start=start, end=end))

    def read(self, key: str) -> bytes:
        """The object."""
        with self._name_errors("read"):
            return bytes(self._client.get(key).bytes())

    def put_new(self, key: str, content: bytes) -> bool:
        """Write the object if there is none with this key; false where there is one."""
        return self.create(key, content) is not None

    def create(self, key: str, content: bytes) -> str | None:
        """The same; what tells the object from any other with this key, and None where there is one."""
        from obstore.exceptions import AlreadyExistsError

        with self._name_errors("written"):
            try:
                return _read_tag(self._client.put(key, content, mode="create", use_multipart=False)["e_tag"])
            except AlreadyExistsError:
                return None

    def take(self, key: str, content: bytes) -> str | None:
        """The same for content that no other writer has, although an answer of the store is lost: nothing, in place of
        what tells the object from any other, where only its content shows that it is ours."""
        try:
            taken = self.create(key, content)
        except StoreError:  # the request may have been carried out
            if not self.holds(key, content):
                raise
            return ""
        return "" if taken is None and self.holds(key, content) else taken

    def holds(self, key: str, content: bytes) -> bool:
        """Whether there is an object with this key and just this content."""
        found = self.read_object(key)
        return found is not None and found[1] == content

    def put_file(self, key: str, file: Path) -> None:
        """Write the object, in parts if it is large; one with this key is replaced."""
        with self._name_errors("written"):
            self._client.put(key, file)

    def list_tags(self, folder: str, after: str) -> dict[str, str]:
        """The objects in a folder that sort behind a key, each with what tells it from any other with its key."""
        with self._name_errors("listed"):
            pages = self._client.list(folder, offset=after, chunk_size=_PAGE, return_arrow=True)
            tables = [pa.table(page) for page in pages]
        columns = [(each["path"].to_pylist(), each["e_tag"].to_pylist()) for each in tables]
        return {key: _read_tag(tag) for keys, tags in columns for key, tag in zip(keys, tags, strict=True)}

    def copy_new(self, key: str, target: str) -> bool:
        """Copy an object within the store if none has the new key; false where one has. Raises `FileNotFoundError`
        where there is nothing to copy."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._client.copy(key, target, overwrite=False)
        except AlreadyExistsError:
            return False
        except FileNotFoundError:
            raise
        except Exception as error:
            raise make_store_error(error, self.url, "cannot be changed") from error
        return True

    def read_clock(self) -> float:
        """The time by the store's clock, in seconds since 1970. Every answer has it, also one that refuses."""
        from email.utils import parsedate_to_datetime
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        endpoint = self._find_endpoint()
        try:
            try:
                with urlopen(Request(endpoint, method="HEAD"), timeout=30) as answer:  # noqa: S310 -- the store's own
                    date = answer.headers["Date"]
            except HTTPError as error:
                date = error.headers["Date"]
            return parsedate_to_datetime(date or "").timestamp()
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{endpoint} does not give its time.",
                hint="Check the endpoint and the network, or leave `min_age` out: an object is never half written.",
                is_away=isinstance(error, OSError),
            ) from error

    def _find_endpoint(self) -> str:
        parts, options = urlsplit(canonicalise(self.url)), get_options(self.url) or {}
        if parts.scheme == "s3a":
            region = options.get("aws_region", "us-east-1")
            china = ".cn" if region.startswith("cn-") else ""
            return options.get("aws_endpoint") or f"https://s3.{region}.amazonaws.com{china}"
        if parts.scheme.startswith("abfs"):
            host = (parts.hostname or "").replace(".dfs.", ".blob.")
            return options.get("azure_storage_endpoint") or f"https://{host}"
        return "https://storage.googleapis.com"

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. One that is not there is no error. A request without an answer is made again."""
        for left in reversed(range(_TRIES if keys else 0)):
            try:
                self._client.delete(list(keys))
            except FileNotFoundError:
                return
            except Exception as error:
                if not left or not re.search(_UNREACHABLE, str(error)):
                    raise make_store_error(error, self.url, "cannot be changed") from error
            else:
                return

    def delete_folder(self, folder: str) -> None:
        """Remove all objects in a folder."""
        for page in self.list_pages(folder):
            self.delete(page)

    def check_put_if_new(self) -> None:
        """Raises `StoreError` unless a key that is taken stays taken: that alone keeps two writers apart."""
        try:
            holds = not self.put_new(PROBE, b"") or not self.put_new(PROBE, b"")
        except StoreError as error:
            if not _UNSUPPORTED.search(str(error.__cause__)):
                raise
            holds = False
        if not holds:
            raise StoreError(f"{self.url} cannot be written: {_KEEPS_NONE}.", hint=_CONDITIONAL)

    @contextlib.contextmanager
    def _name_errors(self, done: str) -> Iterator[None]:
        """Raise `StoreError`, which says that the place cannot be `done`, for whatever the store's library raises."""
        try:
            yield
        except Exception as error:  # its errors have no type of their own
            raise make_store_error(error, self.url, f"cannot be {done}") from error


def can_reach_stores() -> bool:
    """Whether the library for object stores is installed."""
    return importlib.util.find_spec("obstore") is not None


def open_bucket(url: str) -> ObjectStore:
    """The store in which a place is, by whole keys. A process has one for each bucket, whose connections stay open."""
    parts = urlsplit(canonicalise(url))
    return open_store(StoreUrl(f"{parts.scheme}://{parts.netloc}", getattr(url, "settings", {})))


def open_store(url: str) -> ObjectStore:
    """The objects below a URL, with the access as it is now: credentials may be renewed while a run lasts. A process
    has one of these for each URL and access, whose connections stay open."""
    return _open_store(url, tuple(sorted((get_options(url) or {}).items())))


@functools.lru_cache(maxsize=64)
def _open_store(url: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    return ObjectStore(url)


def get_key(url: str) -> str:
    """The key of a place in its store."""
    return canonicalise(url).partition("://")[2].partition("/")[2]


_TRIES = 3
"""So often objects are removed: the library for stores tries every other request again by itself."""
_PAGE = 1_000
"""The objects of one answer to a listing."""


def _read_page(page: Any) -> list[StoredObject]:
    """The objects of a page, which is in Arrow: thousands of them cost little there."""
    found = pa.table(page)  # a page of `list` is a batch, and that of a folder is a table
    modified = pc.cast(found["last_modified"].cast(pa.timestamp("ms", "UTC"), safe=False), pa.int64())
    columns = (found["path"].to_pylist(), modified.to_pylist(), found["size"].to_pylist())
    return [StoredObject(*each) for each in zip(*columns, strict=True)]


def _read_tag(tag: str | None) -> str:
    """A tag as every answer has it: Azure quotes it in some answers."""
    return (tag or "").strip('"')


def _describe_object(found: Any) -> StoredObject:
    return StoredObject(found["path"], round(found["last_modified"].timestamp() * 1_000), found["size"])


PROBE = "_taken"
"""The key of an object that only shows that a key stays taken."""
_UNSUPPORTED = re.compile(r"NotImplemented|501 Not Implemented|not implemented|NotSupported", re.IGNORECASE)
_KEEPS_NONE = "the store lets a new object replace another one, so Wherry cannot keep two writers apart there"
_CONDITIONAL = (
    "Use a store with conditional writes (Amazon S3, Azure, Google, MinIO, Ceph since Tentacle), or keep the state in "
    "a directory or with `state: {schema: …}` in a catalog."
)


def _find_provider() -> dict[str, Any]:
    """What finds the credentials of a profile without keys, by Amazon's own library if that is installed."""
    if not os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}


_NO_BUCKET = r"NoSuchBucket|ContainerNotFound|The specified (?:bucket|container) does not exist"
_REGION = (
    r"AuthorizationHeaderMalformed|PermanentRedirect|incorrectly configured region|IllegalLocationConstraint"
    r"|301 Moved Permanently|AuthorizationQueryParametersError"
)
_CLOCK = r"RequestTimeTooSkewed|RequestExpired|Request date header too old"
_KEYS_REFUSED = (
    r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|TokenRefreshRequired|AuthenticationFailed"
    r"|InvalidAuthenticationInfo|invalid_client"
)
_NO_KEYS = r"169\.254\.169\.254|metadata\.google\.internal|NoCredentials|no credentials|loading credentials"
_DENIED = (
    r"AccessDenied|AllAccessDisabled|AuthorizationPermissionMismatch|AuthorizationFail|403 Forbidden|401 Unauthorized"
)
_UNREACHABLE = (
    r"error sending request|dns error|Connection refused|Connection reset|tcp connect error|operation timed out"
    r"|connection closed|error decoding response body|error reading a body"
)
_NAME = r"invalid path"
_OF_HERE = (_KEYS_REFUSED, _NO_KEYS, _DENIED, _NAME)
_BUSY = (
    r"SlowDown|ServerBusy|TooManyRequests|429 |500 Internal Server Error|502 Bad Gateway|503 Service Unavailable"
    r"|504 Gateway Timeout"
)


def is_store_away(error: BaseException) -> bool:
    """Whether a store fails in a way that passes by itself: it does not answer, or asks for fewer requests."""
    text = str(error)
    return re.search(f"{_UNREACHABLE}|{_BUSY}", text) is not None and re.search(_NO_KEYS, text) is None


def describe_store_error(error: BaseException, url: str) -> tuple[str, str]:
    """Why a store failed, and what to do, in plain words without any credential."""
    text = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    known, options = explain_store_words(text, url), get_options(url) or {}
    if known is not None:
        return known
    secrets = {value: f"${{{name}}}" for name, value in options.items() if _is_secret_option(name)}
    first = " ".join(make_mask(secrets)(text.partition("\n\nDebug source")[0]).split())
    return cut_text(first.rstrip("."), 300), "Check the URL and the credentials."


def explain_store_words(text: str, url: str) -> tuple[str, str] | None:
    """What a store, or Spark on its behalf, means by these words, and what to do; None where that is not known."""
    parts = urlsplit(canonicalise(str(url)))
    options = get_options(url) or {}
    bucket = parts.netloc.partition("@")[0]
    endpoint = options.get("aws_endpoint") or options.get("azure_storage_endpoint") or _find_host(text) or parts.netloc
    region = options.get("aws_region", "us-east-1")
    wanted = re.search(r"expecting (?:&#39;|&apos;|')([a-z0-9-]+)", text)
    name = re.search(r'[Pp]ath "([^"]*)"', text)
    known = (
        (
            _NAME,
            f"the name of the object {cut_text(name[1], 200) if name else ''} cannot be read",
            "Rename or delete it. A name has no empty part, none that is a dot, and no control character.",
        ),
        (_NO_BUCKET, f"the bucket {bucket} does not exist", "Create it, or correct the URL."),
        (
            _REGION,
            f"the bucket {bucket} is in {wanted[1] if wanted else 'another region'}, not in {region}",
            f"Set AWS_REGION{'=' + wanted[1] if wanted else ''}, or fs.s3a.endpoint.region in `spark.conf`.",
        ),
        (
            _CLOCK,
            "the clock of this machine differs too much from the store's",
            "Set the clock of this machine, for example by NTP.",
        ),
        (
            _KEYS_REFUSED,
            f"the store does not accept the credentials ({_find_code(text)})",
            "Renew or correct them, in the environment, the profile or `spark.conf`.",
        ),
        (
            _NO_KEYS,
            "there are no credentials",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or what your cloud uses, or fs.s3a.* in "
            "`spark.conf`.",
        ),
        (
            _DENIED,
            f"these credentials have no right to do that in {bucket} ({_find_code(text)})",
            "Grant the right to list the bucket, and to read, write and delete objects below this URL.",
        ),
        (
            _UNREACHABLE,
            f"{endpoint} does not answer",
            "Check the endpoint, the network and the proxy. Run again once it answers.",
        ),
        (_UNSUPPORTED, _KEEPS_NONE, _CONDITIONAL),
        (_BUSY, f"the store is too busy ({_find_code(text)})", "Wait a little, and run again."),
    )
    return next(((reason, hint) for pattern, reason, hint in known if re.search(pattern, text)), None)


def _is_secret_option(name: str) -> bool:
    return re.search(r"secret|token|account_key|sas_key", name) is not None


def _find_code(text: str) -> str:
    """The store's own word for an error."""
    match = re.search(r"<Code>(\w+)</Code>|\(Service: S3\b[^)]*\):(\w+)", text)
    match = match or re.search(r"\b([45]\d\d [A-Z][A-Za-z ]*[a-z])", text)
    return next(filter(None, match.groups())) if match else "no code"


def _find_host(text: str) -> str:
    match = re.search(r"(?:GET|PUT|HEAD|POST|DELETE) (https?://[^/\s]+)", text)
    return match[1] if match else ""
