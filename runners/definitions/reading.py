"""The values of a definition, read from its document by the types that its dataclasses declare."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.errors import WherryError
from origins.given_path import GivenPath
from origins.origin import Origin
from runners.definitions.document import LARGEST, Fields, Items, Node, Scalar, below_key, plain
from runners.definitions.kinds import CONTRACTS, Kinds, Role
from runners.definitions.options import Option, alternatives, has_shape, options_of
from runners.definitions.problems import Problem, nearest, shortened
from runners.definitions.scalars import WRONG, advice, expected, found, read
from runners.pipeline import Pipeline
from stages.stage import Stage

_CALLED: Mapping[type, Mapping[str, str]] = {Pipeline: {"run_options": "run"}}
"""The fields that a definition calls otherwise than Python does."""

_ROLES: Mapping[type, Role] = {Origin: "origin", Stage: "stage", Destination: "destination"}


@dataclass(kw_only=True)
class Reader:
    """Reads values, and goes on after each problem, so that all of them are found at once."""

    directory: Path
    """What paths are relative to."""
    kinds: Kinds
    problems: list[Problem] = field(default_factory=list)
    places: dict[str, Node] = field(default_factory=dict)
    """Where each path stands."""

    def pipeline(self, node: Node) -> Any:
        """The pipeline, or `WRONG`."""
        pipeline = self._dataclass(node, Pipeline, "")
        if isinstance(node, Fields) and not {"origin", "origins"} & set(node.fields):
            return self._wrong(node, "", "'origin' is missing; expected a mapping")
        return pipeline

    def _value(self, node: Node, option: Option, path: str) -> Any:
        self.places[path] = node
        types = alternatives(option.annotation)
        if isinstance(node, Scalar):
            return self._scalar(node, types, option, path)
        for one in types:
            reads = self._structure(node, one, option)
            if reads is not None:
                return reads(node, path)
        if isinstance(node, Fields) and list(node.fields) == ["file"] and str in types:
            return self._file(node, path)
        dashes = "; put a dash before each" if any(has_shape(one, Sequence) for one in types) else ""
        return self._wrong(node, path, f"expected {expected(option)}, got {found(node)}{dashes}")

    def _structure(self, node: Node, annotation: Any, option: Option) -> Callable[[Any, str], Any] | None:
        """What reads a list or a mapping as this type; None if the type is neither."""
        if annotation is Any:
            return lambda node, _: plain(node)
        if annotation in _ROLES:
            return lambda node, path: self._component(node, _ROLES[annotation], path)
        if annotation is Dlq:
            return self._dlq
        if isinstance(node, Fields):
            if dataclasses.is_dataclass(annotation):
                return lambda node, path: self._dataclass(node, cast("type[Any]", annotation), path)
            if has_shape(annotation, Mapping) and not self._names_a_file(node):
                return lambda node, path: self._mapping(node, get_args(annotation)[1], path)
        elif has_shape(annotation, Sequence):
            each = dataclasses.replace(_option(get_args(annotation)[0]), path=option.path)
            return lambda node, path: self._list(node, each, path)
        return None

    def _list(self, node: Items, option: Option, path: str) -> Any:
        values = [self._value(item, option, f"{path}[{at}]") for at, item in enumerate(node.items)]
        return WRONG if WRONG in values else tuple(values)

    def _mapping(self, node: Fields, element: Any, path: str) -> Any:
        """A mapping by names of the user's own; among expressions and settings `1` and `true` are their own text."""
        option = _option(element)
        values = {}
        for key, inner in node.fields.items():
            if str in alternatives(element) and isinstance(inner, Scalar) and inner.plain and inner.content is not None:
                inner = dataclasses.replace(inner, plain=False)
            values[key] = self._value(inner, option, below_key(path, key))
        return WRONG if WRONG in values.values() else values

    def _scalar(self, node: Scalar, types: Sequence[Any], option: Option, path: str) -> Any:
        for one in types:
            if one in _ROLES:
                return self._component(node, _ROLES[one], path)
            if one is Dlq:
                return self._dlq(node, path)
        if node.loose and not node.text and type(None) in types:
            return None
        for one in types:
            value = read(node, one)
            if value is not WRONG:
                return self._path(node, value, path, option) if option.path and isinstance(value, str) else value
        return self._wrong(node, path, f"expected {expected(option)}, got {found(node)}{advice(node, option)}")

    def _path(self, node: Scalar, value: str, path: str, option: Option | None = None) -> Any:
        """A path from where the definition lies. What looks like a wildcard there is none."""
        if not value:
            return self._wrong(node, path, "expected a path, got nothing")
        if "\0" in value:
            return self._wrong(node, path, f"expected a path without NUL, got {shortened(node.printable)}")
        if node.shown is not None:
            said = "a path is kept in the ledger and in the DLQ, so no secret can stand in it"
            return self._wrong(node, path, f"{said}; in `spark.conf` one can")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", value):
            return value
        wild = option is not None and option.path == "pattern" and glob.has_magic(value)
        directory = glob.escape(str(self.directory)) if wild else self.directory
        expanded = os.path.expanduser(value)
        return expanded if os.path.isabs(expanded) else GivenPath(os.path.join(directory, expanded), value)

    def _file(self, node: Fields, path: str) -> Any:
        name = node.fields["file"]
        if not isinstance(name, Scalar) or not name.text:
            return self._wrong(name, f"{path}.file", f"expected the path of a file, got {found(name)}")
        place = self._path(name, name.text, f"{path}.file")
        if place is WRONG:
            return WRONG
        try:
            with Path(place).open("rb") as opened:
                content = opened.read(LARGEST + 1)
            if len(content) > LARGEST:
                return self._wrong(name, f"{path}.file", f"expected at most 1 MiB in {shortened(name.printable)}")
            return content.decode("utf-8-sig").strip()
        except OSError as error:
            return self._wrong(name, f"{path}.file", f"{shortened(name.printable)} cannot be read: {error.strerror}")
        except ValueError:
            return self._wrong(name, f"{path}.file", f"expected UTF-8 text in {shortened(name.printable)}")

    @staticmethod
    def _names_a_file(node: Fields) -> bool:
        """Whether this is `{file: orders.ddl}`, and no mapping with a name `file` of the user's own."""
        name = node.fields.get("file")
        return len(node.fields) == 1 and isinstance(name, Scalar) and re.search(r"[./]", name.text) is not None

    def _component(self, node: Node, role: Role, path: str) -> Any:
        """What stands as `kind: options`, with what belongs to every component of the role beside it."""
        self.places[path] = node
        known = self.kinds.of(role)
        if not isinstance(node, Fields):
            kind = node.text if isinstance(node, Scalar) and node.text in known else next(iter(known), "kind")
            return self._wrong(node, path, f"expected a mapping such as `{kind}: {{…}}`, got {found(node)}")
        contract = options_of(CONTRACTS[role])
        kinds = [key for key in node.fields if key in known]
        unknown = [key for key in node.fields if key not in known and key not in contract]
        if not kinds:
            for key in unknown:
                self._unknown(node, key, self._no_kind(key, role), path)
            if not unknown:
                self._wrong(node, path, f"expected a kind of {role}: {' or '.join(known)}")
            return WRONG
        if len(kinds) > 1:
            apart = "; each is an item of its own" if path.endswith("]") else ""
            return self._wrong(node, path, f"expected one {role}, got {' and '.join(kinds)}{apart}")
        kind = kinds[0]
        try:
            component = self.kinds.resolve(role, kind)
        except WherryError as error:
            return self._wrong(node, path, error.message)
        for key in unknown:
            said = f"unknown option beside '{kind}'; {nearest(key, contract)}"
            if key in options_of(component):
                said = f"belongs inside of '{kind}'; move it to the right"
            self._unknown(node, key, said, path)
        beside = {
            key: self._value(value, contract[key], below_key(path, key))
            for key, value in node.fields.items()
            if key in contract
        }
        inside = self._inside(node.fields[kind], component, role, kind, below_key(path, kind), outside=unknown)
        if unknown or inside is WRONG or WRONG in beside.values():
            return WRONG
        return self._made(node, component, {**beside, **inside}, below_key(path, kind))

    def _no_kind(self, key: str, role: Role) -> str:
        others = self.kinds.roles(key)
        if others:
            return f"this is a kind of {others[0]}, not of {role}"
        return f"unknown {role}; {nearest(key, self.kinds.of(role))}"

    def _inside(
        self, node: Node, component: type[Any], role: Role, kind: str, path: str, *, outside: Sequence[str]
    ) -> Any:
        """The options inside of a kind, or the one that it takes as its whole value."""
        self.places[path] = node
        contract = options_of(CONTRACTS[role])
        options = {name: option for name, option in options_of(component).items() if name not in contract}
        main = next((option for option in options.values() if option.main), None)
        if main is not None and not self._lists_options(node, main, options):
            value = self._value(node, main, path)
            return WRONG if value is WRONG else {main.name: value}
        if isinstance(node, Scalar) and node.plain and node.content is None:
            node = dataclasses.replace(Fields(fields={}), line=node.line, column=node.column)
        if not isinstance(node, Fields):
            like = f"{{{next(iter(options), '')}: …}}" if options else "{}"
            return self._wrong(node, path, f"expected a mapping such as {like}, got {found(node)}")
        for key in [key for key in node.fields if key in contract and key not in options]:
            self._unknown(node, key, f"stands beside '{kind}', not inside of it", path)
        return self._options(node, options, path, besides=tuple(contract), elsewhere=outside)

    @staticmethod
    def _lists_options(node: Node, main: Option, options: Mapping[str, Option]) -> bool:
        """Whether the value of a component with a main option is a mapping of options all the same."""
        if not isinstance(node, Fields) or any(has_shape(one, Mapping) for one in alternatives(main.annotation)):
            return False
        return main.name in node.fields or not set(node.fields) <= {"file"}

    def _dlq(self, node: Node, path: str) -> Any:
        """The DLQ: its window, and the destination whose kind stands beside it."""
        if not isinstance(node, Fields):
            return self._wrong(
                node, path, f"expected a mapping such as {{window: 1000, threshold: 50}}, got {found(node)}"
            )
        options = {name: option for name, option in options_of(Dlq).items() if name != "destination"}
        kinds = self.kinds.of("destination")
        own = dataclasses.replace(node, fields={k: v for k, v in node.fields.items() if k not in kinds})
        going = dataclasses.replace(node, fields={k: v for k, v in node.fields.items() if k in kinds})
        values = self._options(own, options, path, also=tuple(kinds))
        destination = self._component(going, "destination", path) if going.fields else None
        self.places[path] = node
        if values is WRONG or destination is WRONG:
            return WRONG
        return self._made(node, Dlq, {**values, "destination": destination}, path)

    def _dataclass(self, node: Node, cls: type[Any], path: str) -> Any:
        self.places[path] = node
        called = _CALLED.get(cls, {})
        options = {called.get(name, name): option for name, option in options_of(cls).items()}
        if not isinstance(node, Fields):
            return self._wrong(node, path, f"expected a mapping with {', '.join(options)}, got {found(node)}")
        values = self._options(node, options, path)
        if values is WRONG:
            return WRONG
        return self._made(node, cls, {options[key].name: value for key, value in values.items()}, path)

    def _options(
        self,
        node: Fields,
        options: Mapping[str, Option],
        path: str,
        *,
        besides: Sequence[str] = (),
        elsewhere: Sequence[str] = (),
        also: Sequence[str] = (),
    ) -> Any:
        """The options that a mapping gives, by name; `WRONG` if one is unknown, missing or of another type.

        What is `besides` is unknown and has been said; what stands `elsewhere` is not missing; `also` are
        names that are known, and not read here.
        """
        values: dict[str, Any] = {}
        meant = set(elsewhere)
        for key, value in node.fields.items():
            if key in options:
                values[key] = self._value(value, options[key], below_key(path, key))
            else:
                values[key] = WRONG
                if key not in besides:
                    near = nearest(key, [*options, *also])
                    meant.update(name for name in options if f"'{name}'" in near)
                    self._unknown(node, key, f"unknown option; {near}", path)
        for name, option in options.items():
            if option.required and name not in values:
                values[name] = WRONG
                if name not in meant:
                    self._wrong(node, path, f"'{name}' is missing; expected {expected(option)}")
        return WRONG if WRONG in values.values() else values

    def _made(self, node: Node, cls: type[Any], values: Mapping[str, Any], path: str) -> Any:
        """The dataclass; what its own checks say becomes a problem of the option that they name."""
        try:
            return cls(**values)
        except WherryError as error:
            return self._wrong(node, path, error.message)
        except ValueError as error:
            named, _, said = str(error).partition(": ")
            option, _, inside = named.partition(".")
            options = options_of(cls)
            if not said or option not in options:
                return self._wrong(node, path, str(error))
            below = path if options[option].main else below_key(path, option)
            below = below_key(below, inside) if inside else below
            return self._wrong(self.places.get(below, node), below, said)

    def _unknown(self, node: Fields, key: str, message: str, path: str) -> None:
        self._wrong(node.keys.get(key, node.fields[key]), below_key(path, key), message)

    def _wrong(self, node: Node, path: str, message: str) -> Any:
        self.problems.append(Problem(path=path, message=message, line=node.line, column=node.column))
        return WRONG


def _option(element: Any) -> Option:
    """What stands in a list or under a name of the user's own, as an option."""
    return Option(name="", annotation=element, default=None, main=False, path=False, like="")
