"""Access to an object store: its objects, its Delta tables, and its errors in plain words."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from origins.lazy import LazyModule, delta_errors, deltalake, pa, pc
from origins.secret import cut_text, make_mask
from origins.store_access import (
    StoreError,
    StoreUrl,
    canonicalise,
    find_provider,
    get_options,
    is_driver_here,
    is_secret_option,
    is_store_url,
    make_client_arguments,
    names_credentials,
)

if TYPE_CHECKING:
    import obstore
else:
    obstore = LazyModule("obstore")

Answer = TypeVar("Answer")


def open_delta_table(place: Path | str) -> deltalake.DeltaTable | None:
    """Return the Delta table in a folder or an object store, through `deltalake`; None if no table is found.

    Raise `StoreError` if a store does not answer properly.
    """
    if not is_store_url(place):
        return deltalake.DeltaTable(str(place)) if os.path.exists(place) else None
    try:
        return deltalake.DeltaTable(canonicalise(str(place)), storage_options=get_options(place))
    except delta_errors.TableNotFoundError:
        return None
    except (OSError, delta_errors.DeltaError) as error:
        if isinstance(error, OSError) or is_store_away(error):
            raise make_store_error(error, canonicalise(str(place)), "cannot be read") from error
        raise


def make_store_error(error: Exception, place: str, what: str) -> StoreError:
    """Return the error for a store that refuses a request or is unreachable."""
    reason, hint = describe_store_error(error, place)
    made = StoreError(f"{place} {what}: {reason}.", hint=hint, is_away=is_store_away(error))
    made.is_of_here = re.search("|".join(_OF_HERE), str(error)) is not None
    return made


class StoredObject(NamedTuple):
    """An object as a store described it."""

    key: str
    modified: int
    """Milliseconds since 1970 by the store's clock. A listing may have parts of a second; other answers have none."""
    size: int


class ObjectStore:
    """The objects below a URL, by their keys relative to it.

    Raises `StoreError` if the store does not answer properly.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            refusals = (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)
        except ImportError as error:
            raise StoreError(
                f"{url} is in an object store, and the library for these is not installed.",
                hint='Install it with:  pip install "wherry[stores]"',
            ) from error
        arguments = make_client_arguments(url)
        config = arguments["config"]
        provider = {} if "aws_access_key_id" in config or not url.startswith("s3") else find_provider()
        self._client, self._refusals = obstore.store.from_url(**arguments, **provider), refusals

    def list_pages(self, folder: str = "", after: str = "") -> Iterator[list[str]]:
        """Yield the keys of all objects in a folder, at any depth, in pages.

        With `after`, only keys that sort after it are included.
        """
        for page in self.list_objects(folder, after):
            yield [found.key for found in page]

    def list_folder(self, folder: str = "") -> tuple[list[str], list[StoredObject]]:
        """Return the folders and the objects directly in a folder.

        An empty object that marks a folder is listed as an object.
        """
        with self._name_errors("listed"):
            found = self._client.list_with_delimiter(folder or None, return_arrow=True)
            return list(found["common_prefixes"]), _read_page(found["objects"])

    @property
    def is_sorted(self) -> bool:
        """Return whether a listing is sorted by key and can begin after any key without a look at earlier keys."""
        url = canonicalise(self.url)
        return url.startswith("s3a:") and not urlsplit(url).netloc.endswith("--x-s3")

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[list[StoredObject]]:
        """Yield the objects in a folder, at any depth, in pages.

        With `after`, only objects that sort after it are included.
        """
        with self._name_errors("listed"):
            for page in self._client.list(folder or None, offset=after or None, chunk_size=_PAGE, return_arrow=True):
                yield _read_page(page)

    def find(self, key: str) -> StoredObject | None:
        """Return the object with this key as it is now; None if no object has it."""
        with self._name_errors("read"):
            try:
                return _describe_object(self._client.head(key))
            except FileNotFoundError:
                return None

    def exists(self, key: str) -> bool:
        """Return whether an object with this key exists."""
        return self.find(key) is not None

    def read_object(self, key: str) -> tuple[StoredObject, bytes] | None:
        """Return the object and its content, both at the same moment; None if no object has this key."""
        with self._name_errors("read"):
            try:
                found = self._client.get(key)
                return _describe_object(found.meta), bytes(found.bytes())
            except FileNotFoundError:
                return None

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` to before `end`. The range must not be empty."""
        with self._name_errors("read"):
            return bytes(self._client.get_range(key, start=start, end=end))

    def read(self, key: str) -> bytes:
        """Return the content of the object."""
        with self._name_errors("read"):
            return bytes(self._client.get(key).bytes())

    def put_new(self, key: str, content: bytes) -> None:
        """Write the object. An object with this key and the same content counts as written.

        Raise `StoreError` if an object with this key has other content.
        """
        if self.take(key, content) is None:
            raise StoreError(
                f"{self.url} cannot be written: {key} has other content already.",
                hint="Another program writes there. Nothing was replaced.",
            )

    def claim(self, key: str) -> bool:
        """Write an empty object if none has this key. Return whether none had it. Afterwards, one has it."""
        return self._create(key, b"") is not None

    def take(self, key: str, content: bytes) -> str | None:
        """Write the object if no object has this key, even if an answer of the store is lost.

        No other writer may have this content. Return the tag that distinguishes the object from any other with this
        key, or the empty string if only the content shows that it is ours; None if another object has the key.
        """
        try:
            taken = self._create(key, content)
        except StoreError as error:  # the store may have carried out the request
            if error.is_of_here or not self.holds(key, content):
                raise
            return ""
        return "" if taken is None and self.holds(key, content) else taken

    def holds(self, key: str, content: bytes) -> bool:
        """Return whether an object has this key and exactly this content."""
        found = self.read_object(key)
        return found is not None and found[1] == content

    def put_file(self, key: str, file: Path) -> None:
        """Write the object, in parts if it is large. An object with this key is replaced."""

        def put() -> bool:
            with self._name_errors("written"):
                self._client.put(key, file)
            return True

        self._repeat_refused(put, lambda: False)

    def list_tags(self, folder: str, after: str) -> dict[str, str]:
        """Return the tags of the objects in a folder that sort after a key, by key.

        A tag distinguishes an object from any other with its key.
        """
        with self._name_errors("listed"):
            pages = self._client.list(folder, offset=after, chunk_size=_PAGE, return_arrow=True)
            tables = [pa.table(page) for page in pages]
        columns = [(each["path"].to_pylist(), each["e_tag"].to_pylist()) for each in tables]
        return {key: _read_tag(tag) for keys, tags in columns for key, tag in zip(keys, tags, strict=True)}

    def copy_new(self, key: str, target: str) -> bool:
        """Copy an object within the store if none has the new key. Return false if one has.

        Raise `FileNotFoundError` if the object to copy is missing.
        """

        def copy() -> bool:
            with self._name_errors("changed"):
                self._client.copy(key, target, overwrite=False)
            return True

        try:
            return self._repeat_refused(copy, lambda: self.exists(target)) is not None
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise error.__cause__ from None
            raise

    def _create(self, key: str, content: bytes) -> str | None:
        """Write the object, and return its tag; None if an object has this key."""
        return self._repeat_refused(lambda: self._try_create(key, content), lambda: self.exists(key))

    def _try_create(self, key: str, content: bytes) -> str:
        with self._name_errors("written"):
            return _read_tag(self._client.put(key, content, mode="create", use_multipart=False)["e_tag"])

    def _repeat_refused(self, write: Callable[[], Answer], is_there: Callable[[], bool]) -> Answer | None:
        """Return what `write` returns; None if it was refused because of an object that is there.

        A store also refuses a key while another request for it is in progress. Then nothing may be there, and nothing
        was written.
        """
        pauses = iter(_PAUSES)
        while True:
            try:
                return write()
            except StoreError as error:
                if not self._is_refusal(error):
                    raise
                if is_there():
                    return None
                pause = next(pauses, None)
                if pause is None:
                    error.is_away = True
                    raise
            time.sleep(pause)

    def _is_refusal(self, error: StoreError) -> bool:
        return isinstance(error.__cause__, self._refusals)

    def read_clock(self) -> float:
        """Return the time of the store's clock, in seconds since 1970. Every answer has it, even a refusal."""
        from email.utils import parsedate_to_datetime
        from urllib.error import HTTPError
        from urllib.request import ProxyHandler, Request, build_opener

        endpoint, proxy = self._find_endpoint(), (get_options(self.url) or {}).get("proxy_url")
        opener = build_opener(*([ProxyHandler({"http": proxy, "https": proxy})] if proxy else []))
        try:
            try:
                request = Request(endpoint, method="HEAD")  # noqa: S310 -- the store's endpoint
                with opener.open(request, timeout=30) as answer:
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
        """Remove objects. A missing object is no error. A request without an answer is repeated."""
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
        """Raise `StoreError` unless the store refuses to replace an object. Only that keeps two writers apart."""
        try:
            for _ in range(2):
                self._try_create(PROBE, b"")
            holds = False
        except StoreError as error:
            holds = self._is_refusal(error)
            if not holds and not _UNSUPPORTED.search(str(error.__cause__)):
                raise
        if not holds:
            raise StoreError(f"{self.url} cannot be written: {_KEEPS_NONE}.", hint=_CONDITIONAL)

    @contextlib.contextmanager
    def _name_errors(self, done: str) -> Iterator[None]:
        """Raise any error of the store's library as a `StoreError` with the message that the place cannot be `done`."""
        try:
            yield
        except Exception as error:  # the library's errors have no common type
            raise make_store_error(error, self.url, f"cannot be {done}") from error


def check_credentials(url: str) -> None:
    """Raise `StoreError` if there are no credentials at all for a place in S3, within seconds.

    If nothing names any, the metadata service of the machine is asked for a role, through the library for stores.
    """
    if names_credentials(url) or not is_driver_here() or not can_reach_stores():
        return
    bucket = urlsplit(canonicalise(url)).netloc
    arguments = make_client_arguments(StoreUrl(f"s3a://{bucket}", getattr(url, "settings", {})))
    arguments["client_options"] |= {"connect_timeout": "2s", "timeout": "4s"}
    retries: Any = {"max_retries": 1, "retry_timeout": timedelta(seconds=4)}
    try:
        obstore.store.from_url(**arguments, retry_config=retries).head(PROBE)
    except Exception as error:  # the library's errors have no common type
        if re.search(_NO_KEYS, str(error)):
            raise StoreError(
                f"There are no credentials for s3a://{bucket}: no keys in `spark.conf` or the environment, no profile, "
                "and no role of this machine.",
                hint=_GIVE_KEYS,
            ) from error


def can_reach_stores() -> bool:
    """Return whether the library for object stores is installed."""
    return importlib.util.find_spec("obstore") is not None


def open_bucket(url: str) -> ObjectStore:
    """Return the store of a place, with keys from the root of its bucket.

    A process keeps one per bucket, connections open.
    """
    parts = urlsplit(canonicalise(url))
    return open_store(StoreUrl(f"{parts.scheme}://{parts.netloc}", getattr(url, "settings", {})))


def open_store(url: str) -> ObjectStore:
    """Return the objects below a URL, with the current access, since credentials may be renewed during a run.

    A process keeps one store for each URL and access, and its connections stay open.
    """
    return _open_store(url, tuple(sorted((get_options(url) or {}).items())))


@functools.lru_cache(maxsize=64)
def _open_store(url: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    return ObjectStore(url)


_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""The seconds between attempts to write an object that the store refuses, and does not have."""
_TRIES = 3
"""The number of attempts to remove objects. The library for stores repeats every other request itself."""
_PAGE = 1_000
"""The number of objects in one answer to a listing."""


def _read_page(page: Any) -> list[StoredObject]:
    """Return the objects of a page. Arrow makes thousands of them cheap."""
    found = pa.table(page)  # a page of `list` is a batch, and the page of a folder is a table
    modified = pc.cast(found["last_modified"].cast(pa.timestamp("ms", "UTC"), safe=False), pa.int64())
    columns = (found["path"].to_pylist(), modified.to_pylist(), found["size"].to_pylist())
    return [StoredObject(*each) for each in zip(*columns, strict=True)]


def _read_tag(tag: str | None) -> str:
    """Return a tag in the same form for every answer: Azure quotes it in some answers."""
    return (tag or "").strip('"')


def _describe_object(found: Any) -> StoredObject:
    return StoredObject(found["path"], round(found["last_modified"].timestamp() * 1_000), found["size"])


PROBE = "_taken"
"""The key of an object that only tests whether the store refuses to replace an object."""
_UNSUPPORTED = re.compile(r"NotImplemented|501 Not Implemented|not implemented|NotSupported", re.IGNORECASE)
_KEEPS_NONE = "the store lets a new object replace another one, so Wherry cannot keep two writers apart there"
_CONDITIONAL = (
    "Use a store with conditional writes (Amazon S3, Azure, Google, MinIO, Ceph since Tentacle), or keep the state in "
    "a directory or with `state: {schema: …}` in a catalog."
)

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
_NO_KEYS = (
    r"169\.254\.169\.254|/latest/(?:api/token|meta-data)|metadata\.google\.internal|NoCredentials|no credentials"
    r"|loading credentials"
)
_GIVE_KEYS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or what your cloud uses, or fs.s3a.* in `spark.conf`."
)
_DENIED = (
    r"AccessDenied|AllAccessDisabled|AuthorizationPermissionMismatch|AuthorizationFail|403 Forbidden|401 Unauthorized"
)
_UNREACHABLE = (
    r"error sending request|dns error|Connection refused|Connection reset|tcp connect error|operation timed out"
    r"|connection closed|error decoding response body|error reading a body"
)
_NAME = r"invalid path"
_COLLIDES = r"ConditionalRequestConflict|OperationAborted|PreconditionFailed"
_OF_HERE = (_KEYS_REFUSED, _NO_KEYS, _DENIED, _NAME)
_BUSY = (
    r"SlowDown|ServerBusy|TooManyRequests|429 |500 Internal Server Error|502 Bad Gateway|503 Service Unavailable"
    r"|504 Gateway Timeout"
)


def is_store_away(error: BaseException) -> bool:
    """Return whether a store's failure passes by itself: it does not answer, or asks for fewer requests."""
    text = str(error)
    return re.search(f"{_UNREACHABLE}|{_BUSY}", text) is not None and re.search(_NO_KEYS, text) is None


def describe_store_error(error: BaseException, url: str) -> tuple[str, str]:
    """Return why a store failed, and a remedy, in plain words without any credential."""
    text = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    known, options = explain_store_words(text, url), get_options(url) or {}
    if known is not None:
        return known
    secrets = {value: f"${{{name}}}" for name, value in options.items() if is_secret_option(name)}
    first = " ".join(make_mask(secrets)(text.partition("\n\nDebug source")[0]).split())
    return cut_text(first.rstrip("."), 300), "Check the URL and the credentials."


def explain_store_words(text: str, url: str) -> tuple[str, str] | None:
    """Return what these words of a store, or of Spark on its behalf, mean, and a remedy; None if unknown."""
    parts = urlsplit(canonicalise(str(url)))
    options = get_options(url) or {}
    bucket = parts.netloc.partition("@")[0]
    asked = re.search(r"(?:GET|PUT|HEAD|POST|DELETE) (https?://[^/\s]+)", text)
    known_endpoint = options.get("aws_endpoint") or options.get("azure_storage_endpoint")
    endpoint = known_endpoint or (asked[1] if asked else parts.netloc)
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
        (_NO_KEYS, "there are no credentials", _GIVE_KEYS),
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
        (
            _COLLIDES,
            f"the store refuses to write it ({_find_code(text)})",
            "Another request for the same object may be in progress. Wait a little, and run again.",
        ),
        (_BUSY, f"the store is too busy ({_find_code(text)})", "Wait a little, and run again."),
    )
    return next(((reason, hint) for pattern, reason, hint in known if re.search(pattern, text)), None)


def _find_code(text: str) -> str:
    """Return the store's code for an error."""
    match = re.search(r"<Code>(\w+)</Code>|\(Service: S3\b[^)]*\):(\w+)", text)
    match = match or re.search(r"\b([45]\d\d [A-Z][A-Za-z ]*[a-z])", text)
    return next(filter(None, match.groups())) if match else "no code"
