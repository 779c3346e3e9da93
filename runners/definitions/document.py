"""A YAML 1.2 document as a tree in which every node knows its line.

Text is text unless YAML 1.2 gives it another type: `no`, `off` and dates are text. Tags, duplicate keys, and aliases
that expand without end are refused. No document can create an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from origins.problems import DefinitionError as DefinitionError
from origins.problems import Problem as Problem
from origins.problems import find_nearest as find_nearest
from origins.problems import suggest_nearest as suggest_nearest
from origins.secret import make_secret
from runners.model.text import shorten

LARGEST = 1 << 20
"""How many bytes a definition has at most."""
MOST = 100_000
"""How many values a definition has at most. Each alias counts as the values that it stands for."""
DEEPEST = 50
"""How many levels a definition has at most."""


@dataclass(frozen=True, kw_only=True)
class _Located:
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Scalar(_Located):
    """A single value, without values inside."""

    text: str
    plain: bool = False
    """Whether it has no quotes, so that YAML gives it a type."""
    loose: bool = False
    """Whether it comes from a parameter or the command line, so that it takes the type of its option."""
    shown: str | None = None
    """The text as messages show it, if that differs: a secret is shown as its reference."""

    @property
    def printable(self) -> str:
        """The text without secrets."""
        return self.text if self.shown is None else self.shown

    @property
    def content(self) -> str | int | float | bool | None:
        """The value that YAML 1.2 gives to the text. A secret is text or a number, and keeps its reference."""
        typed = _parse_scalar(self.text) if self.plain else self.text
        if self.shown is None:
            return typed
        return make_secret(self.text if typed is None or isinstance(typed, bool) else typed, self.shown)


@dataclass(frozen=True, kw_only=True, eq=False)
class Items(_Located):
    """A list."""

    items: Sequence[Node]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fields(_Located):
    """A mapping. Its keys are text, as they are written."""

    fields: Mapping[str, Node]
    keys: Mapping[str, Scalar] = field(default_factory=dict)
    """The node of each key, with its position."""


Node: TypeAlias = "Scalar | Items | Fields"


def parse(text: str, name: str) -> Node:
    """Parse the text, which has one document. Raise `DefinitionError` with line and column.

    `name` is the name of the file.
    """
    return _TreeBuilder(text, name).node


def decode_text(content: bytes, name: str) -> str:
    """Return the text of a definition file. Raise `DefinitionError` if it is too large or not UTF-8."""
    if len(content) > LARGEST:
        raise DefinitionError(name, [Problem(path="", message=f"expected at most 1 MiB, got {len(content)} bytes")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"expected UTF-8 text, got the byte 0x{content[error.start]:02x}; save the file as UTF-8"
        raise DefinitionError(name, [Problem(path="", message=message, line=line)]) from error


def is_writable_text(text: str) -> bool:
    """Whether the text can be written as UTF-8: it has no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def to_plain(node: Node) -> Any:
    """Return the tree as plain values."""
    if isinstance(node, Fields):
        return {key: to_plain(value) for key, value in node.fields.items()}
    return [to_plain(item) for item in node.items] if isinstance(node, Items) else node.content


class _TreeBuilder:
    """Builds the tree from the parser's events, and stops before it grows past its bounds."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._text = text
        self._problems: list[Problem] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._size = 0
        self._events = self._parse_events()
        self.node = self._build_document()
        if self._problems:
            raise DefinitionError(name, self._problems)

    def _parse_events(self) -> Iterator[events.Event]:
        try:
            yield from YAML(typ="safe", pure=True).parse(self._text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = " ".join(part for part in (error.context, error.problem) if part)
            raise self._make_yaml_error(message, mark.line + 1, mark.column + 1) from error
        except (YAMLError, ValueError, OverflowError) as error:
            raise self._make_yaml_error(str(error).splitlines()[0], None, None) from error

    def _make_yaml_error(self, what: str, line: int | None, column: int | None) -> DefinitionError:
        where = f" (line {line}, column {column})" if line else ""
        problem = Problem(path="", message=f"this is not YAML{where}: {what}", line=line, column=column)
        written = self._text.splitlines()[line - 1 : line] if line else []
        hint = ""
        if written and "${" in written[0]:
            hint = 'Quote a parameter between brackets or braces: "${NAME}".'
        elif "mapping values are not allowed" in what:
            hint = "Quote text with a colon and a space; indent nested options further."
        elif "'\\t'" in what:
            hint = "Indent with spaces, not with tabs."
        elif "cannot start any token" in what:
            hint = "Quote text that begins with one of @ ` % | >."
        return DefinitionError(self._name, [problem], hint=hint)

    def _build_document(self) -> Node:
        next(self._events)
        if not isinstance(next(self._events), events.DocumentStartEvent):
            raise DefinitionError(self._name, [Problem(path="", message="the definition is empty")])
        node = self._build_node(next(self._events), "", 0)
        next(self._events)
        after = next(self._events)
        if isinstance(after, events.DocumentStartEvent):
            self._add(after, "", "expected one YAML document, found a second one; remove the line of three dashes")
        return node

    def _build_node(self, event: events.Event, path: str, depth: int) -> Node:
        if isinstance(event, events.AliasEvent):
            return self._resolve_alias(event, path)
        assert isinstance(event, events.ScalarEvent | events.CollectionStartEvent)
        before = self._size
        self._grow(event, path, 1)
        if depth > DEEPEST:
            raise self._stop(event, "", f"expected at most {DEEPEST} nested levels")
        if event.tag is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            self._add(event, path, f"expected no tags, got {shorten(tag)}; remove it")
        if isinstance(event, events.ScalarEvent) and not is_writable_text(event.value):
            raise self._stop(
                event, path, f"expected whole characters, got half of a surrogate pair: {shorten(event.value)}"
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node: Node
        if isinstance(event, events.ScalarEvent):
            node = Scalar(text=event.value, plain=event.style is None, **_locate(event))
        elif isinstance(event, events.SequenceStartEvent):
            node = self._build_items(event, path, depth)
        else:
            node = self._build_fields(event, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._size - before)
        return node

    def _build_items(self, event: events.Event, path: str, depth: int) -> Items:
        items: list[Node] = []
        while not isinstance(inner := next(self._events), events.SequenceEndEvent):
            items.append(self._build_node(inner, f"{path}[{len(items)}]", depth + 1))
        return Items(items=items, **_locate(event))

    def _build_fields(self, event: events.Event, path: str, depth: int) -> Fields:
        fields: dict[str, Node] = {}
        keys: dict[str, Scalar] = {}
        merged: list[Fields] = []
        while not isinstance(inner := next(self._events), events.MappingEndEvent):
            key = self._build_node(inner, path, depth + 1)
            name = key.text if isinstance(key, Scalar) else ""
            below = join_key(path, name)
            value = self._build_node(next(self._events), below, depth + 1)
            if not isinstance(key, Scalar) or not name:
                self._add(inner, path, "expected a name before the colon")
            elif name == "<<" and key.plain:
                merged.extend(self._list_merged(inner, below, value))
            elif name in keys:
                self._add(inner, below, f"is there twice, first in line {keys[name].line}; remove one of them")
            else:
                fields[name], keys[name] = value, key
        for other in merged:
            fields.update({name: value for name, value in other.fields.items() if name not in fields})
            keys.update({name: key for name, key in other.keys.items() if name not in keys})
        return Fields(fields=fields, keys=keys, **_locate(event))

    def _list_merged(self, event: events.Event, path: str, value: Node) -> list[Fields]:
        given = value.items if isinstance(value, Items) else [value]
        mappings = [one for one in given if isinstance(one, Fields)]
        if len(mappings) < len(given):
            self._add(event, path, "expected the alias of a mapping, or a list of such aliases")
        return mappings

    def _resolve_alias(self, event: events.AliasEvent, path: str) -> Node:
        if event.anchor not in self._anchors:
            remedy = "define it above, or quote the text"
            raise self._stop(event, path, f"the anchor &{event.anchor} of this alias is missing; {remedy}")
        known = self._anchors[event.anchor]
        if known is None:
            raise self._stop(event, path, f"the alias *{event.anchor} is inside of its own anchor")
        self._grow(event, path, known[1])
        return known[0]

    def _grow(self, event: events.Event, path: str, by: int) -> None:
        self._size += by
        if self._size > MOST:
            raise self._stop(
                event, path, f"the definition has more than {MOST:,} values after its aliases are replaced"
            )

    def _add(self, event: events.Event, path: str, message: str) -> None:
        self._problems.append(Problem(path=path, message=message, **_locate(event)))

    def _stop(self, event: events.Event, path: str, message: str) -> DefinitionError:
        self._add(event, path, message)
        return DefinitionError(self._name, self._problems)


def join_key(path: str, key: str) -> str:
    """Return the path of the value under a key."""
    shown = key if _SIMPLE.fullmatch(key) else shorten(key)
    return f"{path}.{shown}" if path else shown


class _Location(TypedDict):
    line: int
    column: int


def _locate(event: events.Event) -> _Location:
    return {"line": event.start_mark.line + 1, "column": event.start_mark.column + 1}


_SIMPLE = re.compile(r"[\w-]+")
_NULL = ("", "~", "null", "Null", "NULL")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,100}|[0-9]{1,100}(?:\.[0-9]{0,100})?)(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


def _parse_scalar(text: str) -> str | int | float | bool | None:
    """Return the value by the core schema of YAML 1.2. Unlike there, infinity and not-a-number are text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text.startswith("0") and text[1:2] in ("o", "x") else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text
