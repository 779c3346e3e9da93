"""The source of the schemas of messages: a file, or a registry with Confluent's API."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request, build_opener

from origins.errors import OriginError
from origins.kafka.avro import AvroCoding
from origins.kafka.formats import CODED, Coding, NoColumns
from origins.kafka.protobuf import ProtobufCoding

Texts: TypeAlias = "tuple[str, ...]"
"""A schema after the schemas that it refers to."""
PATIENCE = 10.0
"""The seconds that an answer of the registry may take."""
_OPTIONS = ("url", "username", "password", "token", "ca")
_MISSING = 404
_BUSY = (408, 429)
_known: dict[tuple[Any, ...], Any] = {}
"""Answers that never change: the version of a subject, and the schema of an id."""


@dataclass(frozen=True, kw_only=True)
class SchemaRegistry:
    """The registry at a URL. Its schemas never change, so a process requests each only once."""

    url: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str = ""
    """The file with the certificates that must have signed the registry's certificate."""

    @staticmethod
    def of(options: Mapping[str, str]) -> SchemaRegistry:
        """Return the registry of these options. Raise ValueError if they are invalid."""
        strange = sorted(set(options) - {*_OPTIONS})
        if strange or "url" not in options:
            got = strange[0] if strange else "no url"
            raise ValueError(f"registry: expected url, and with it {', '.join(_OPTIONS[1:])}, got {got}")
        url = str(options["url"])
        if not url.startswith(("http://", "https://")) or "@" in url:
            raise ValueError("registry: expected a url such as https://registry:8081, without a user in it")
        if options.get("token") and options.get("username"):
            raise ValueError("registry: expected a token or a username, got both")
        return SchemaRegistry(**{**{name: str(value) for name, value in options.items()}, "url": url.rstrip("/")})

    def list_schemas(self, subject: str) -> Mapping[int, Texts]:
        """Return the schemas of all versions of a subject by id, the newest last. Deleted versions are included.

        It is empty if the subject does not exist.
        """
        versions = self._ask(f"subjects/{_quote(subject)}/versions?deleted=true", missing=())
        found: dict[int, Texts] = {}
        for version in sorted(versions):
            key = (self, subject, version)
            if key not in _known:
                answer = self._ask(f"subjects/{_quote(subject)}/versions/{version}?deleted=true")
                _known[key] = answer["id"], self._read(answer, subject)
            number, texts = _known[key]
            found.pop(number, None)
            found[number] = _known[self, number] = texts
        return found

    def find_newest(self, subject: str) -> tuple[int, Texts] | None:
        """Return the newest schema of a subject, with its id; None if the subject does not exist.

        Deleted versions do not count.
        """
        answer = self._ask(f"subjects/{_quote(subject)}/versions/latest", missing=None)
        return None if answer is None else (answer["id"], self._read(answer, subject))

    def get_schema(self, number: int) -> Texts:
        """Return the schema with this id. Raise `OriginError` if the registry does not have it."""
        if (self, number) not in _known:
            answer = self._ask(f"schemas/ids/{number}", missing=None)
            if answer is None:
                raise OriginError(
                    f"The schema registry at {self.url} has no schema with id {number}, which a planned batch needs.",
                    hint="Restore the schema in the registry, or point `registry` to another one.",
                )
            _known[self, number] = self._read(answer, f"id {number}")
        found: Texts = _known[self, number]
        return found

    def _read(self, answer: Mapping[str, Any], what: str) -> Texts:
        """Return the schema of an answer, after the schemas that it refers to."""
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise OriginError(
                f"The schema of {what} in the registry at {self.url} is {kind}, and not AVRO.",
                hint="Choose the format of the topic's values, or name its subjects with `subjects`.",
            )
        texts: dict[str, None] = {}
        for each in answer.get("references", ()):
            path = f"subjects/{_quote(each['subject'])}/versions/{each['version']}?deleted=true"
            texts.update(dict.fromkeys(self._read(self._ask(path), each["subject"])))
        return (*texts, answer["schema"])

    def _ask(self, path: str, **other: Any) -> Any:
        """Return the answer to a request; `missing`, if it is given, if the registry answers 404.

        Raise `OriginError` for any other failure. It contains no password.
        """
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        request = Request(f"{self.url}/{path}", headers=headers)  # noqa: S310 -- `of` accepts only http and https
        if self.token or self.username:
            user = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Bearer {self.token}" if self.token else f"Basic {user}")
        where = f"The schema registry at {self.url}"
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            with build_opener(HTTPSHandler(context=context)).open(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            error.close()
            if error.code == _MISSING and "missing" in other:
                return other["missing"]
            again = error.code >= 500 or error.code in _BUSY
            raise self._explain(error.code, path) from (ConnectionError(str(error)) if again else error)
        except (URLError, OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            raise OriginError(
                f"{where} gives no answer: {why}.", hint="Check `registry`; `wherry doctor FILE` tries it."
            ) from ConnectionError(str(why))
        except ValueError as error:
            raise OriginError(
                f"{where} gave an answer that is not JSON.", hint="Check the url of `registry`."
            ) from error

    def _explain(self, status: int, path: str) -> OriginError:
        if status in (401, 403):
            credentials = "a token" if self.token else f"the user {self.username}" if self.username else "no user"
            return OriginError(
                f"The schema registry at {self.url} did not accept {credentials} (HTTP {status}).",
                hint="Check `username` and `password`, or `token`, of `registry`.",
            )
        return OriginError(
            f"The schema registry at {self.url} answered HTTP {status} to {path.partition('?')[0]}.",
            hint="Check the url of `registry`, and the registry's own log.",
        )


class CodingOptions(Protocol):
    """The options that describe how the values of messages are coded."""

    @property
    def format(self) -> str: ...
    @property
    def schema_file(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...
    @property
    def registry(self) -> Mapping[str, str]: ...
    @property
    def place(self) -> str: ...


def check_coding(options: CodingOptions) -> None:
    """Raise ValueError unless the coding of values is given exactly once."""
    kind = options.format
    for name, kinds in {"schema_file": CODED, "message": ("protobuf",), "registry": ("avro",)}.items():
        if getattr(options, name) and kind not in kinds:
            raise ValueError(f"{name}: expected with format: {' or '.join(kinds)} only, got {kind}")
    if kind == "avro" and bool(options.schema_file) == bool(options.registry):
        got = "both" if options.registry else "none"
        raise ValueError(f"schema_file: expected a schema_file or a registry for format: avro, got {got}")
    if kind == "protobuf" and not (options.schema_file and options.message):
        raise ValueError("schema_file: expected a file of descriptors, and the message, for format: protobuf")
    if options.registry:
        SchemaRegistry.of(options.registry)


def read_schema_file(options: CodingOptions) -> Coding:
    """Return the coding that the schema file describes. Raise `OriginError` if it cannot be read."""
    assert options.schema_file is not None
    try:
        content = Path(options.schema_file).read_bytes()
        if options.format == "protobuf":
            return ProtobufCoding(descriptors=content, message=str(options.message))
        return AvroCoding(schemas={0: (content.decode(),)}, header=False)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise OriginError(
            f"The schema of {options.place} cannot be read from {options.schema_file}: {why}.",
            hint="Name the file with `schema_file`, from the definition's folder.",
        ) from error


@contextmanager
def explain_coding(options: CodingOptions, hint: str) -> Iterator[None]:
    """Raise `OriginError`, with this hint, if within the context a schema gives no columns or a package is missing."""
    try:
        yield
    except NoColumns as error:
        raise OriginError(f"The schema of {options.place} gives no columns: {error}.", hint=hint) from error
    except ImportError as error:
        raise OriginError(
            f"A package for {options.format} is missing: {error}.", hint="pip install 'wherry[kafka]'"
        ) from error


def make_digest(texts: Sequence[str]) -> str:
    """Return a digest that distinguishes a schema from others."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _quote(text: str) -> str:
    return quote(text, safe="")
