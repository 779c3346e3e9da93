"""The kinds of origins, stages and destinations, found by name, and the options that their dataclasses declare."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import destinations
import origins
import stages
from destinations.destination import Destination
from origins.batch import JSON
from origins.codec import JsonForm
from origins.errors import WherryError
from origins.functions import FunctionMissing, check_function, load_function
from origins.origin import Origin
from stages.stage import Stage

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


Role: TypeAlias = Literal["origin", "stage", "destination"]
Component: TypeAlias = "Origin | Stage | Destination"

CONTRACTS: Mapping[Role, type[Component]] = {"origin": Origin, "stage": Stage, "destination": Destination}
"""The contract of each role. In a definition, its fields are written beside a kind, and the kind's fields inside."""
ROLES: Mapping[Any, Role] = {contract: role for role, contract in CONTRACTS.items()}
CALLED = {"run_options": "run"}
"""The field that has another name in a definition than in Python."""

GROUPS: Mapping[Role, str] = {
    "origin": "wherry.origins",
    "stage": "wherry.stages",
    "destination": "wherry.destinations",
}
"""The entry points by which an installed package adds kinds. Each names a class as `module:Class`."""
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class KindMissing(WherryError):
    """A kind that cannot be used here."""

    code = "KIND"


@dataclass(frozen=True)
class Kinds:
    """The kinds that a definition may use. Each name has `module:Class`, or the class."""

    origins: Mapping[str, str | type[Origin]]
    stages: Mapping[str, str | type[Stage]]
    destinations: Mapping[str, str | type[Destination]]

    def get_kinds(self, role: Role) -> Mapping[str, str | type[Any]]:
        """Return the kinds of a role."""
        return {"origin": self.origins, "stage": self.stages, "destination": self.destinations}[role]

    def resolve(self, role: Role, kind: str, *, folder: Path | None = None) -> type[Any]:
        """Return the class of a kind: one of these kinds, one of an installed package, or `module:Class`.

        The module may be a file in the folder. Raise `KindMissing` if the class cannot be used.
        """
        known = self.get_kinds(role).get(kind)
        if isinstance(known, type):
            return known
        if known is None:
            return _load(role, kind, folder)
        module, _, name = known.partition(":")
        try:
            resolved: type[Any] = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise KindMissing(f"the {role} '{kind}' cannot be used here: {error}") from error
        return resolved

    def is_known(self, role: Role, name: str) -> bool:
        """Whether a name is a kind of this role. Installed packages are searched only if these kinds lack it."""
        return name in self.get_kinds(role) or is_class_reference(name) or name in list_installed(role)

    def list_names(self, role: Role) -> list[str]:
        """Return the kinds of a role. Kinds of other packages come last."""
        return list(dict.fromkeys([*self.get_kinds(role), *list_installed(role)]))

    def list_roles(self, name: str) -> list[Role]:
        """Return the roles that have a kind of this name."""
        return [role for role in CONTRACTS if name in self.get_kinds(role) or name in list_installed(role)]


def is_class_reference(name: str) -> bool:
    """Whether a kind is written as `module:Class`."""
    return _CLASS.fullmatch(name) is not None


def list_installed(role: Role) -> Mapping[str, Sequence[EntryPoint]]:
    """Return the kinds that installed packages add, by name. A name has several entries if several packages add it."""
    from importlib.metadata import entry_points

    points: dict[str, list[EntryPoint]] = {}
    for each in entry_points(group=GROUPS[role]):
        points.setdefault(each.name, []).append(each)
    return points


def _load(role: Role, kind: str, folder: Path | None) -> type[Any]:
    """Return the class that another package provides, after checking it."""
    what, target = f"the {role} '{kind}'", f"{folder}/{kind}" if folder else kind
    if not is_class_reference(kind):
        points = list_installed(role)[kind]
        packages = " and ".join(sorted({_name_package(each) for each in points}))
        what, target = f"{what} of {packages}", points[0].value
        if len({each.value for each in points}) > 1:
            raise KindMissing(f"{what}: expected one package with this name; write `module:Class` instead")
    contract = CONTRACTS[role]
    wanted = f"expected a subclass of {role}s.{contract.__name__}"
    try:
        check_function("its entry point", target)
        loaded: Any = load_function(target)
    except (FunctionMissing, ValueError) as error:
        raise KindMissing(f"{what} cannot be used here; {wanted}, got: {error}") from error
    if not isinstance(loaded, type) or not issubclass(loaded, contract):
        roles = [other for other, each in CONTRACTS.items() if isinstance(loaded, type) and issubclass(loaded, each)]
        got = f"{roles[0]} {loaded.__name__}" if roles else f"{type(loaded).__name__} {getattr(loaded, '__name__', '')}"
        raise KindMissing(f"{what}: {wanted}, got the {got.replace('type ', 'class ').strip()}")
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        raise KindMissing(f"{what}: {wanted} with all abstract members; {loaded.__name__} lacks {', '.join(missing)}")
    return loaded


def _name_package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


@functools.cache
def get_our_kinds() -> Kinds:
    """Return the kinds that Wherry provides."""
    return Kinds(origins.KINDS, stages.KINDS, destinations.KINDS)


@dataclass(frozen=True, kw_only=True)
class Kind(JsonForm):
    """A kind as `wherry kinds` shows it."""

    role: Role
    name: str
    source: str
    """The package that provides the kind, with its version. For Wherry's kinds it is `wherry`."""
    summary: str
    options: tuple[DescribedOption, ...]
    """The options that are written inside the kind."""
    beside: tuple[DescribedOption, ...]
    """The options that are written beside the kind."""
    promises: Mapping[str, str]
    """The properties of the kind in words, each with a short label."""


@dataclass(frozen=True, kw_only=True)
class DescribedOption:
    """An option as `wherry kinds` shows it."""

    name: str
    type: str
    required: bool
    default: Any
    main: bool
    text: str


def describe_kind(role: Role, kind: str, kinds: Kinds | None = None) -> Kind:
    """Return a kind with its options, defaults and promises. Raise `KindMissing` if it cannot be used."""
    kinds = kinds or get_our_kinds()
    component = kinds.resolve(role, kind)
    docs = read_docs(component)
    contract = list_options(CONTRACTS[role])
    options = [_describe_option(option, docs.get(option.name, "")) for option in list_options(component).values()]
    return Kind(
        role=role,
        name=kind,
        source=_find_source(role, kind, kinds),
        summary=read_summary(component),
        options=tuple(option for option in options if option.name not in contract),
        beside=tuple(option for option in options if option.name in contract),
        promises=_list_promises(component),
    )


def list_kinds() -> list[Kind]:
    """Return all kinds, described: origins, stages, destinations. The summary of an unusable kind gives the reason."""
    kinds = get_our_kinds()
    return [_describe_or_explain(role, kind, kinds) for role in CONTRACTS for kind in kinds.list_names(role)]


def find_kind(component: object, kinds: Kinds | None = None) -> str:
    """Return the kind of a component: its name in a definition, or else a name made from its class."""
    kinds = kinds or get_our_kinds()
    cls: type[Any] = type(component)
    for role in CONTRACTS:
        for name, target in kinds.get_kinds(role).items():
            if target in (f"{cls.__module__}:{cls.__qualname__}", cls):
                return name
    return _name_of(cls)  # type: ignore[arg-type]  # a class can be hashed


@functools.cache
def _name_of(cls: type[Any]) -> str:
    """Return the name by which an installed package adds a class, or else a name made from the class."""
    for role, contract in CONTRACTS.items():
        for name, points in list_installed(role).items() if issubclass(cls, contract) else ():
            targets = (each.value.partition(":") for each in points)
            if any(getattr(sys.modules.get(module), attribute, None) is cls for module, _, attribute in targets):
                return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


def _find_source(role: Role, kind: str, kinds: Kinds) -> str:
    if kind in kinds.get_kinds(role):
        return "wherry"
    return kind.partition(":")[0] if is_class_reference(kind) else _name_package(list_installed(role)[kind][0])


def _describe_or_explain(role: Role, kind: str, kinds: Kinds) -> Kind:
    try:
        return describe_kind(role, kind, kinds)
    except KindMissing as error:
        source = _find_source(role, kind, kinds)
        return Kind(role=role, name=kind, source=source, summary=error.message, options=(), beside=(), promises={})


def _describe_option(option: Option, text: str) -> DescribedOption:
    default = None if option.required else option.default
    return DescribedOption(
        name=option.name,
        type=f"{describe_type(option.annotation)}, like {option.like}"
        if option.like
        else describe_type(option.annotation),
        required=option.required,
        default=dataclasses.asdict(default) if dataclasses.is_dataclass(default) else default,  # type: ignore[arg-type]
        main=option.main,
        text=text,
    )


def _list_promises(component: type[Any]) -> dict[str, str]:
    if issubclass(component, Destination):
        return {"guarantee": component.guarantee}
    if issubclass(component, Origin):
        binds = ", ".join(sorted(component.binds)) or "none"
        again = "the same rows" if component.repeatable else "perhaps other rows, so Wherry prepares every batch"
        return {"a batch is limited by": binds, "read twice it gives": again}
    return {}


_HOLDS = {"stage": Sequence[Stage]}
"""The types of options that are declared before the types exist, by `field(metadata={"holds": "stage"})`."""

REQUIRED = dataclasses.MISSING
"""The default of an option that must be given."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: a field of a dataclass."""

    name: str
    annotation: Any
    default: Any
    """`REQUIRED` if it must be given."""
    main: bool
    """Whether a component takes this option as its whole value."""
    path: bool | Literal["pattern"]
    """Whether it is a path, or a path with wildcards. Declared by `field(metadata={"path": True})`."""
    like: str
    """An example of a value. Declared by `field(metadata={"like": "10s"})`."""
    secret: bool = False
    """Whether its value is never shown or stored. Declared by `field(metadata={"secret": True})`."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED


def list_options(component: type) -> Mapping[str, Option]:
    """Return the options of a dataclass by name, in the order of its fields.

    A field with `metadata={"hidden": True}` is not an option.
    """
    fields = [field for field in dataclasses.fields(component) if field.init and not field.metadata.get("hidden")]
    positional = [field.name for field in fields if not field.kw_only]
    hints = get_type_hints(component)
    return {
        field.name: Option(
            name=field.name,
            annotation=_HOLDS[field.metadata["holds"]] if "holds" in field.metadata else hints[field.name],
            default=field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
            main=positional == [field.name],
            path=field.metadata.get("path", False),
            like=str(field.metadata.get("like", "")),
            secret=field.metadata.get("secret", False),
        )
        for field in fields
    }


def list_alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type of anything else."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def has_shape(annotation: Any, shape: type) -> bool:
    """Whether the annotation is a generic of this class. For example, `Mapping[str, str]` is a generic of `Mapping`."""
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, shape)


def describe_type(annotation: Any) -> str:
    """Describe for a person what an option takes."""
    words = [_describe_alternative(one) for one in list_alternatives(annotation) if one is not type(None)]
    return " or ".join(dict.fromkeys(word for word in words if word)) or "nothing"


def read_docs(component: type) -> Mapping[str, str]:
    """Return the sentences below the fields of a dataclass or a Struct, by field.

    Those of the class override inherited ones.
    """
    docs: dict[str, str] = {}
    for one in reversed(component.__mro__):
        if dataclasses.is_dataclass(one) or hasattr(one, "__struct_fields__"):
            docs.update(_read_docs_in_source(one))
    return docs


def read_summary(component: type) -> str:
    """Return the first sentence of a class's docstring."""
    paragraph = (inspect.getdoc(component) or "").split("\n\n")[0].replace("\n", " ")
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + "." if stop else sentence


def _describe_alternative(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(repr(value) for value in get_args(annotation))
    if has_shape(annotation, Sequence):
        return "a list"
    if has_shape(annotation, Mapping) or dataclasses.is_dataclass(annotation):
        return "a mapping"
    return _WORDS.get(annotation, "")


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", JSON: "anything"}


@functools.cache
def _read_docs_in_source(component: type) -> Mapping[str, str]:
    docs = {}
    for field, below in itertools.pairwise(_list_bodies(component.__module__).get(component.__name__, [])):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                docs[field.target.id] = " ".join(text.split())
    return docs


@functools.cache
def _list_bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Return the statements of each class of a module, by the class's name. Empty if there is no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node.body for node in reversed([*ast.walk(tree)]) if isinstance(node, ast.ClassDef)}
