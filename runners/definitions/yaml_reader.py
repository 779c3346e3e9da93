"""The values of a definition, read from its document by the types that its dataclasses declare."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args, get_origin

from destinations.dlq import Dlq
from origins.errors import WherryError
from origins.gone import describe_gone, name_option
from origins.names import GivenPath
from origins.problems import describe_unknown
from origins.secret import make_secret
from runners.definitions.document import (
    LARGEST,
    DefinitionError,
    Fields,
    Items,
    Node,
    Problem,
    Scalar,
    join_key,
    parse,
    suggest_nearest,
    to_plain,
)
from runners.definitions.kinds import (
    CALLED,
    CONTRACTS,
    ROLES,
    Kinds,
    Option,
    Role,
    describe_type,
    get_our_kinds,
    has_shape,
    list_alternatives,
    list_options,
)
from runners.model.spec import PipelineSpec
from runners.model.text import shorten

WRONG: Final = object()
"""Replaces a value that could not be read. The problems contain the reason."""


def read_scalar(node: Scalar, annotation: Any) -> Any:
    """Return the scalar as this type, or `WRONG`. A secret stays a secret, and is never a truth value."""
    value = _convert_scalar(node, annotation)
    if node.shown is None or value is WRONG or value is None:
        return value
    return WRONG if annotation is bool else make_secret(value, node.shown)


def _convert_scalar(node: Scalar, annotation: Any) -> Any:
    content = node.content
    if node.loose:
        content = Scalar(text=node.text, plain=annotation is not str).content
    if annotation is Any:
        return node.content
    if annotation is type(None):
        return None if content is None else WRONG
    if get_origin(annotation) is Literal:
        return node.text if content is not None and node.text in get_args(annotation) else WRONG
    if annotation is float and type(content) is int:
        return float(content)
    return content if type(content) is annotation else WRONG


def describe_expected(option: Option) -> str:
    """Describe in words what an option takes."""
    expected = describe_type(option.annotation)
    return f"{expected} such as {option.like}" if option.like else expected


def describe_found(node: Node) -> str:
    """Describe in words what a node contains."""
    if isinstance(node, Fields):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    content = node.content
    if isinstance(content, str) or node.loose:
        return f"the text {shorten(node.printable)}"
    if content is None:
        return "NULL" if node.printable else "nothing"
    return f"{_TYPES[type(content)]} {node.text}"


_TYPES = {bool: "the truth value", int: "the number", float: "the number"}


def suggest_remedy(node: Scalar, option: Option) -> str:
    """Return what to do about a value of another type, if that is known."""
    types = list_alternatives(option.annotation)
    if bool in types and node.shown is not None:
        return "; a secret can be text or a number, and ${NAME} can be true or false"
    unquoted = type(Scalar(text=node.text, plain=True).content)
    if str in types and node.plain and node.printable and not option.like:
        return f'; to use it as text, quote it: "{node.printable[:60]}"'
    if not node.plain and not node.loose and unquoted in types:
        return "; remove the quotes"
    if bool in types and node.printable.lower() in ("yes", "no", "on", "off"):
        return f"; write {'true' if node.printable.lower() in ('yes', 'on') else 'false'}"
    if any(_takes_item(one, node) for one in types) and node.printable:
        return f"; put it in brackets: [{node.printable[:60]}]"
    return ""


def _takes_item(annotation: Any, node: Scalar) -> bool:
    """Whether the type is a list that may contain the value."""
    words = [word for item in get_args(annotation) if get_origin(item) is Literal for word in get_args(item)]
    return has_shape(annotation, Sequence) and (not words or node.content in words)


T = TypeVar("T")


@dataclass(kw_only=True)
class DefinitionReader:
    """Reads values, and continues after each problem, so that all problems are found at once."""

    directory: Path
    """The directory that paths are relative to."""
    kinds: Kinds
    problems: list[Problem] = field(default_factory=list)
    places: dict[str, Node] = field(default_factory=dict)
    """The node of each path."""

    def read_pipeline(self, node: Node) -> Any:
        """Return the pipeline, or `WRONG`."""
        pipeline = self.read_dataclass(node, PipelineSpec, "")
        if isinstance(node, Fields) and not {"origin", "origins"} & set(node.fields):
            return self._add_problem(node, "", "'origin' is missing; expected a mapping")
        return pipeline

    def _read_value(self, node: Node, option: Option, path: str) -> Any:
        self.places[path] = node
        types = list_alternatives(option.annotation)
        for one in types:
            if one in ROLES:
                return self._read_component(node, ROLES[one], path)
            if one is Dlq:
                return self._read_dlq(node, path)
            if one is Any and not isinstance(node, Scalar):
                return to_plain(node)
            if isinstance(node, Items) and has_shape(one, Sequence):
                return self._read_list(node, get_args(one)[0], option, path)
            if isinstance(node, Fields) and dataclasses.is_dataclass(one):
                return self.read_dataclass(node, cast("type[Any]", one), path)
            if isinstance(node, Fields) and has_shape(one, Mapping) and not self._is_file_reference(node):
                return self._read_mapping(node, get_args(one)[1], path)
        if isinstance(node, Scalar):
            return self._read_scalar(node, types, option, path)
        if isinstance(node, Fields) and list(node.fields) == ["file"] and str in types:
            return self._read_file(node, path)
        dashes = "; put a dash before each" if any(has_shape(one, Sequence) for one in types) else ""
        return self._add_problem(
            node, path, f"expected {describe_expected(option)}, got {describe_found(node)}{dashes}"
        )

    def _read_list(self, node: Items, element: Any, option: Option, path: str) -> Any:
        each = dataclasses.replace(_make_element_option(element), path=option.path)
        values = [self._read_value(item, each, f"{path}[{at}]") for at, item in enumerate(node.items)]
        return WRONG if WRONG in values else tuple(values)

    def _read_mapping(self, node: Fields, element: Any, path: str) -> Any:
        """Read a mapping with names that the user chose. Among expressions and settings, `1` and `true` are text."""
        option = _make_element_option(element)
        values = {}
        for key, inner in node.fields.items():
            if (
                str in list_alternatives(element)
                and isinstance(inner, Scalar)
                and inner.plain
                and inner.content is not None
            ):
                inner = dataclasses.replace(inner, plain=False)
            values[key] = self._read_value(inner, option, join_key(path, key))
        return WRONG if WRONG in values.values() else values

    def _read_scalar(self, node: Scalar, types: Sequence[Any], option: Option, path: str) -> Any:
        if node.loose and not node.text and type(None) in types:
            return None
        for one in types:
            value = read_scalar(node, one)
            if value is not WRONG:
                return (
                    self._resolve_path(node, value, path, option) if option.path and isinstance(value, str) else value
                )
        return self._add_problem(
            node,
            path,
            f"expected {describe_expected(option)}, got {describe_found(node)}{suggest_remedy(node, option)}",
        )

    def _resolve_path(self, node: Scalar, value: str, path: str, option: Option | None = None) -> Any:
        """Return the path relative to the definition's directory.

        Wildcard characters in that directory's name are escaped.
        """
        if not value:
            return self._add_problem(node, path, "expected a path, got nothing")
        if "\0" in value:
            return self._add_problem(node, path, f"expected a path without NUL, got {shorten(node.printable)}")
        if node.shown is not None:
            message = "expected a path without a secret, since the ledger and the DLQ keep it"
            return self._add_problem(node, path, f"{message}; `spark.conf` may have one")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", value):
            return value
        wild = option is not None and option.path == "pattern" and glob.has_magic(value)
        directory = glob.escape(str(self.directory)) if wild else self.directory
        expanded = os.path.expanduser(value)
        return expanded if os.path.isabs(expanded) else GivenPath(os.path.join(directory, expanded), value)

    def _read_file(self, node: Fields, path: str) -> Any:
        name = node.fields["file"]
        if not isinstance(name, Scalar) or not name.text:
            return self._add_problem(name, f"{path}.file", f"expected the path of a file, got {describe_found(name)}")
        place = self._resolve_path(name, name.text, f"{path}.file")
        if place is WRONG:
            return WRONG
        try:
            with Path(place).open("rb") as opened:
                content = opened.read(LARGEST + 1)
            if len(content) > LARGEST:
                return self._add_problem(name, f"{path}.file", f"expected at most 1 MiB in {shorten(name.printable)}")
            return content.decode("utf-8-sig").strip()
        except OSError as error:
            return self._add_problem(
                name, f"{path}.file", f"{shorten(name.printable)} cannot be read: {error.strerror}"
            )
        except ValueError:
            return self._add_problem(name, f"{path}.file", f"expected UTF-8 text in {shorten(name.printable)}")

    @staticmethod
    def _is_file_reference(node: Fields) -> bool:
        """Whether this is a reference such as `{file: orders.ddl}`, and not a mapping with the user's name `file`."""
        name = node.fields.get("file")
        return len(node.fields) == 1 and isinstance(name, Scalar) and re.search(r"[./]", name.text) is not None

    def _read_component(self, node: Node, role: Role, path: str) -> Any:
        """Read a component written as `kind: options`, with the options of every component of the role beside it."""
        self.places[path] = node
        known = self.kinds.get_kinds(role)
        if not isinstance(node, Fields):
            kind = node.text if isinstance(node, Scalar) and node.text in known else next(iter(known), "kind")
            return self._add_problem(
                node, path, f"expected a mapping such as `{kind}: {{…}}`, got {describe_found(node)}"
            )
        contract = list_options(CONTRACTS[role])
        kinds = [key for key in node.fields if key not in contract and self.kinds.is_known(role, key)]
        unknown = [key for key in node.fields if key not in contract and key not in kinds]
        if not kinds:
            for key in unknown:
                self._add_unknown(node, key, self._make_unknown_kind_message(key, role), path)
            if not unknown:
                self._add_problem(node, path, f"expected a kind of {role}: {' or '.join(known)}")
            return WRONG
        if len(kinds) > 1:
            apart = "; make each an item of its own" if path.endswith("]") else ""
            return self._add_problem(node, path, f"expected one {role}, got {' and '.join(kinds)}{apart}")
        kind = kinds[0]
        try:
            component = self.kinds.resolve(role, kind, folder=self.directory)
        except WherryError as error:
            return self._add_problem(node.keys.get(kind, node), path, error.message)
        for key in unknown:
            gone = describe_gone(name_option(path, key))
            message = gone or f"unknown option beside '{kind}'; {suggest_nearest(key, contract)}"
            if key in list_options(component):
                message = f"belongs inside of '{kind}'; indent it further"
            self._add_unknown(node, key, message, path)
        beside = {
            key: self._read_value(value, contract[key], join_key(path, key))
            for key, value in node.fields.items()
            if key in contract
        }
        inside = self._read_inside(node.fields[kind], component, role, kind, join_key(path, kind), outside=unknown)
        if unknown or inside is WRONG or WRONG in beside.values():
            return WRONG
        return self._make_dataclass(node, component, {**beside, **inside}, join_key(path, kind))

    def _make_unknown_kind_message(self, key: str, role: Role) -> str:
        others = self.kinds.list_roles(key)
        if others:
            return f"expected a kind of {role}, got a kind of {others[0]}"
        known = self.kinds.list_names(role)
        return describe_gone(f"{role}.{key}") or f"unknown {role}; {suggest_nearest(key, known)}"

    def _read_inside(
        self, node: Node, component: type[Any], role: Role, kind: str, path: str, *, outside: Sequence[str]
    ) -> Any:
        """Read the options inside a kind, or the one option that it takes as its whole value."""
        self.places[path] = node
        contract = list_options(CONTRACTS[role])
        options = {name: option for name, option in list_options(component).items() if name not in contract}
        main = next((option for option in options.values() if option.main), None)
        if main is not None and not self._is_options(node, main, options):
            if isinstance(node, Fields) and isinstance(node.fields.get(main.name), Fields) and len(node.fields) == 1:
                inner, message = node.fields[main.name], f"belongs directly under '{kind}'; leave out '{main.name}'"
                return self._add_problem(inner, join_key(path, main.name), message)
            value = self._read_value(node, main, path)
            return WRONG if value is WRONG else {main.name: value}
        if isinstance(node, Scalar) and node.plain and node.content is None:
            node = dataclasses.replace(Fields(fields={}), line=node.line, column=node.column)
        if not isinstance(node, Fields):
            like = f"{{{next(iter(options), '')}: …}}" if options else "{}"
            return self._add_problem(node, path, f"expected a mapping such as {like}, got {describe_found(node)}")
        for key in [key for key in node.fields if key in contract and key not in options]:
            self._add_unknown(node, key, f"belongs beside '{kind}', not inside of it", path)
        return self._read_options(node, options, path, besides=tuple(contract), elsewhere=outside)

    @staticmethod
    def _is_options(node: Node, main: Option, options: Mapping[str, Option]) -> bool:
        """Whether the value of a component with a main option is a mapping of options nevertheless."""
        if not isinstance(node, Fields) or any(has_shape(one, Mapping) for one in list_alternatives(main.annotation)):
            return False
        return main.name in node.fields or not set(node.fields) <= {"file"}

    def _read_dlq(self, node: Node, path: str) -> Any:
        """Read the DLQ: its window, and the destination whose kind is written beside it."""
        if not isinstance(node, Fields):
            return self._add_problem(
                node, path, f"expected a mapping such as {{window: 1000, threshold: 50}}, got {describe_found(node)}"
            )
        options = {name: option for name, option in list_options(Dlq).items() if name != "destination"}
        kinds = [key for key in node.fields if key not in options and self.kinds.is_known("destination", key)]
        own = dataclasses.replace(node, fields={k: v for k, v in node.fields.items() if k not in kinds})
        going = dataclasses.replace(node, fields={k: v for k, v in node.fields.items() if k in kinds})
        also = self.kinds.list_names("destination") if set(own.fields) - set(options) else ()
        values = self._read_options(own, options, path, also=also)
        destination = self._read_component(going, "destination", path) if going.fields else None
        self.places[path] = node
        if values is WRONG or destination is WRONG:
            return WRONG
        return self._make_dataclass(node, Dlq, {**values, "destination": destination}, path)

    def read_dataclass(self, node: Node, cls: type[Any], path: str) -> Any:
        """Return a dataclass of options, or `WRONG`."""
        self.places[path] = node
        options = {CALLED.get(name, name): option for name, option in list_options(cls).items()}
        if not isinstance(node, Fields):
            return self._add_problem(
                node, path, f"expected a mapping with {', '.join(options)}, got {describe_found(node)}"
            )
        values = self._read_options(node, options, path)
        if values is WRONG:
            return WRONG
        return self._make_dataclass(node, cls, {options[key].name: value for key, value in values.items()}, path)

    def _read_options(
        self,
        node: Fields,
        options: Mapping[str, Option],
        path: str,
        *,
        besides: Sequence[str] = (),
        elsewhere: Sequence[str] = (),
        also: Sequence[str] = (),
    ) -> Any:
        """Return the options of a mapping, by name. Return `WRONG` if one is unknown, missing or of another type.

        Options in `besides` are unknown and reported already. Options in `elsewhere` are not missing. `also` has known
        names that are not read here.
        """
        values: dict[str, Any] = {}
        meant = set(elsewhere)
        for key, value in node.fields.items():
            if key in options:
                values[key] = self._read_value(value, options[key], join_key(path, key))
            else:
                values[key] = WRONG
                if key not in besides:
                    message = describe_unknown(path, key, [*options, *also])
                    meant.update(name for name in options if f"'{name}'" in message)
                    self._add_unknown(node, key, message, path)
        for name, option in options.items():
            if option.required and name not in values:
                values[name] = WRONG
                if name not in meant:
                    self._add_problem(node, path, f"'{name}' is missing; expected {describe_expected(option)}")
        return WRONG if WRONG in values.values() else values

    def _make_dataclass(self, node: Node, cls: type[Any], values: Mapping[str, Any], path: str) -> Any:
        """Return the dataclass. An error of its checks becomes a problem of the option that the error names."""
        try:
            return cls(**values)
        except WherryError as error:
            return self._add_problem(node, path, error.message)
        except ValueError as error:
            named, _, message = str(error).partition(": ")
            option, _, inside = named.partition(".")
            options = list_options(cls)
            if not message or option not in options:
                return self._add_problem(node, path, str(error))
            below = path if options[option].main else join_key(path, option)
            below = join_key(below, inside) if inside else below
            return self._add_problem(self.places.get(below, node), below, message)

    def _add_unknown(self, node: Fields, key: str, message: str, path: str) -> None:
        self._add_problem(node.keys.get(key, node.fields[key]), join_key(path, key), message)

    def _add_problem(self, node: Node, path: str, message: str) -> Any:
        self.problems.append(Problem(path=path, message=message, line=node.line, column=node.column))
        return WRONG


def read_options(cls: type[T], values: Mapping[str, Any], path: str, name: str) -> T:
    """Read a dataclass of options from a mapping that was written in Python, in the same way as from a definition.

    Raise `DefinitionError` with this name and with everything that is wrong.
    """
    try:
        text = json.dumps(values)
    except (TypeError, ValueError) as error:
        problem = Problem(path=path, message=f"expected a mapping of YAML values, got {error}")
        raise DefinitionError(name, [problem]) from error
    reader = DefinitionReader(directory=Path(), kinds=get_our_kinds())
    read = reader.read_dataclass(parse(text, name), cls, path)
    if reader.problems:
        raise DefinitionError(name, [dataclasses.replace(each, line=None, column=None) for each in reader.problems])
    return cast("T", read)


def _make_element_option(element: Any) -> Option:
    """Return an option for an element of a list, or for a value under a name that the user chose."""
    return Option(name="", annotation=element, default=None, main=False, path=False, like="")
