"""The kinds of origins, stages and destinations: found by name when they are used, described from their dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import destinations
import origins
import stages
from destinations.destination import Destination
from origins.errors import WherryError
from origins.origin import Origin
from runners.definitions.options import Option, docs_of, options_of, summary_of, words
from stages.stage import Stage

Role: TypeAlias = Literal["origin", "stage", "destination"]
Component: TypeAlias = "Origin | Stage | Destination"

CONTRACTS: Mapping[Role, type[Component]] = {"origin": Origin, "stage": Stage, "destination": Destination}
"""The fields of a contract stand beside a kind, those of the kind inside."""


class KindMissing(WherryError):
    """A kind that cannot be used here."""

    code = "KIND"


@dataclass(frozen=True)
class Kinds:
    """The kinds that a definition may use: for each name `module:Class`, or the class itself."""

    origins: Mapping[str, str | type[Origin]]
    stages: Mapping[str, str | type[Stage]]
    destinations: Mapping[str, str | type[Destination]]

    def of(self, role: Role) -> Mapping[str, str | type[Any]]:
        """The kinds of a role."""
        return {"origin": self.origins, "stage": self.stages, "destination": self.destinations}[role]

    def resolve(self, role: Role, kind: str) -> type[Any]:
        """The class of a kind. Raises `KindMissing` when what it needs is not installed."""
        found = self.of(role)[kind]
        if isinstance(found, type):
            return found
        module, _, name = found.partition(":")
        try:
            resolved: type[Any] = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise KindMissing(f"the {role} '{kind}' cannot be used here: {error}") from error
        return resolved

    def roles(self, kind: str) -> list[Role]:
        """What a name is a kind of."""
        return [role for role in CONTRACTS if kind in self.of(role)]


@functools.cache
def ours() -> Kinds:
    """The kinds that Wherry brings."""
    return Kinds(origins.KINDS, stages.KINDS, destinations.KINDS)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind as `wherry kinds` shows it."""

    role: Role
    name: str
    summary: str
    options: tuple[Described, ...]
    """What stands inside of the kind."""
    beside: tuple[Described, ...]
    """What stands beside it."""
    promises: Mapping[str, str]
    """What holds for it, in words, by a word each."""

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class Described:
    """An option as `wherry kinds` shows it."""

    name: str
    type: str
    required: bool
    default: Any
    main: bool
    text: str


def described(role: Role, kind: str, kinds: Kinds | None = None) -> Kind:
    """A kind with its options, defaults and promises."""
    component = (kinds or ours()).resolve(role, kind)
    docs = docs_of(component)
    contract = options_of(CONTRACTS[role])
    options = [_described(option, docs.get(option.name, "")) for option in options_of(component).values()]
    return Kind(
        role=role,
        name=kind,
        summary=summary_of(component),
        options=tuple(option for option in options if option.name not in contract),
        beside=tuple(option for option in options if option.name in contract),
        promises=_promises(component),
    )


def every(kinds: Kinds | None = None) -> list[Kind]:
    """All kinds, described: origins, stages, destinations."""
    kinds = kinds or ours()
    return [described(role, kind, kinds) for role in CONTRACTS for kind in kinds.of(role)]


def kind_of(component: object, kinds: Kinds | None = None) -> str:
    """The kind of a component: its name in a definition, or its class's name as one would be written."""
    kinds = kinds or ours()
    own = f"{type(component).__module__}:{type(component).__qualname__}"
    for role in CONTRACTS:
        for name, found in kinds.of(role).items():
            if found in (own, type(component)):
                return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(component).__name__).lower()


def _described(option: Option, text: str) -> Described:
    default = None if option.required else option.default
    return Described(
        name=option.name,
        type=f"{words(option.annotation)}, like {option.like}" if option.like else words(option.annotation),
        required=option.required,
        default=dataclasses.asdict(default) if dataclasses.is_dataclass(default) else default,  # type: ignore[arg-type]
        main=option.main,
        text=text,
    )


def _promises(component: type[Any]) -> dict[str, str]:
    if issubclass(component, Destination):
        return {"guarantee": component.guarantee}
    if issubclass(component, Origin):
        binds = ", ".join(sorted(component.binds)) or "none"
        again = "the same rows" if component.repeatable else "perhaps other rows, so that every batch is prepared"
        return {"a batch is limited by": binds, "read twice it gives": again}
    return {}
