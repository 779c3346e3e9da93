"""The options of a component, as the fields of its dataclass declare them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from origins.batch import JSON
from stages.stage import Stage

_HOLDS = {"stage": Sequence[Stage]}
"""What options hold that are declared upstream of their type, by `field(metadata={"holds": "stage"})`."""

REQUIRED = dataclasses.MISSING
"""The default of an option that has none."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: a field of a dataclass."""

    name: str
    annotation: Any
    default: Any
    """`REQUIRED` when it must be given."""
    main: bool
    """Whether it is the one that a component takes as its whole value."""
    path: bool | Literal["pattern"]
    """Whether it is a path, or one with wildcards; declared by `field(metadata={"path": True})`."""
    like: str
    """How a value is written, as an example; declared by `field(metadata={"like": "10s"})`."""
    secret: bool = False
    """Whether its value is neither shown nor stored; declared by `field(metadata={"secret": True})`."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED


def options_of(component: type) -> Mapping[str, Option]:
    """The options of a dataclass by name, in the order of its fields.

    A field with `metadata={"hidden": True}` is none.
    """
    fields = [field for field in dataclasses.fields(component) if field.init and not field.metadata.get("hidden")]
    positional = [field.name for field in fields if not field.kw_only]
    hints = get_type_hints(component)
    return {
        field.name: Option(
            name=field.name,
            annotation=_HOLDS[field.metadata["holds"]] if "holds" in field.metadata else hints[field.name],
            default=_default(field),
            main=positional == [field.name],
            path=field.metadata.get("path", False),
            like=str(field.metadata.get("like", "")),
            secret=field.metadata.get("secret", False),
        )
        for field in fields
    }


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types of a union; the one type of anything else."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def has_shape(annotation: Any, shape: type) -> bool:
    """Whether the annotation is a generic of this class, as `Mapping[str, str]` is of `Mapping`."""
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, shape)


def words(annotation: Any) -> str:
    """What an option takes, as a person would say it."""
    said = [_word(one) for one in alternatives(annotation) if one is not type(None)]
    return " or ".join(dict.fromkeys(word for word in said if word)) or "nothing"


def docs_of(component: type) -> Mapping[str, str]:
    """The sentences that stand beneath the fields of a dataclass, by field; its own win over inherited ones."""
    docs: dict[str, str] = {}
    for one in reversed(component.__mro__):
        if dataclasses.is_dataclass(one):
            docs.update(_docs_in_source(one))
    return docs


def summary_of(component: type) -> str:
    """The first sentence of the docstring."""
    paragraph = (inspect.getdoc(component) or "").split("\n\n")[0].replace("\n", " ")
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + "." if stop else sentence


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _word(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(repr(value) for value in get_args(annotation))
    if has_shape(annotation, Sequence):
        return "a list"
    if has_shape(annotation, Mapping) or dataclasses.is_dataclass(annotation):
        return "a mapping"
    return _WORDS.get(annotation, "")


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", JSON: "anything"}


@functools.cache
def _docs_in_source(component: type) -> Mapping[str, str]:
    docs = {}
    for field, below in itertools.pairwise(_body_of(component)):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            said = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(said, str):
                docs[field.target.id] = " ".join(said.split())
    return docs


def _body_of(component: type) -> list[ast.stmt]:
    """What stands in a class; nothing where there is no source."""
    known = _classes_in(component.__module__)
    if component.__qualname__ in known:
        return known[component.__qualname__]
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(component)))
    except (OSError, TypeError):
        return []
    return tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []


@functools.cache
def _classes_in(module: str) -> Mapping[str, list[ast.stmt]]:
    """The classes at the top of a module, by their names: a module is read much quicker than each class of it alone."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {one.name: one.body for one in tree.body if isinstance(one, ast.ClassDef)}
