"""A value of a document as the type of its option, and the words for what it is when it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args, get_origin

from origins.secret import make_secret
from runners.definitions.document import Fields, Items, Node, Scalar
from runners.definitions.options import Option, alternatives, has_shape, words
from runners.definitions.problems import shortened

WRONG: Final = object()
"""In the place of a value that could not be read; why is among the problems."""


def read(node: Scalar, annotation: Any) -> Any:
    """The scalar as this type, or `WRONG`. A secret stays one, and is never a truth value."""
    value = _read(node, annotation)
    if node.shown is None or value is WRONG or value is None:
        return value
    return WRONG if annotation is bool else make_secret(value, node.shown)


def _read(node: Scalar, annotation: Any) -> Any:
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


def expected(option: Option) -> str:
    """What an option takes, in words."""
    said = words(option.annotation)
    return f"{said} such as {option.like}" if option.like else said


def found(node: Node) -> str:
    """What stands there, in words."""
    if isinstance(node, Fields):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if not node.plain or node.loose:
        return f"the text {shortened(node.printable)}"
    if node.content is None:
        return "NULL" if node.printable else "nothing"
    content = node.content
    if isinstance(content, str):
        return f"the text {shortened(node.printable)}"
    return f"{_TYPES[type(content)]} {node.text}"


_TYPES = {bool: "the truth value", int: "the number", float: "the number"}


def advice(node: Scalar, option: Option) -> str:
    """What to do about a value of another type, where that can be told."""
    types = alternatives(option.annotation)
    if bool in types and node.shown is not None:
        return "; a secret can be text or a number, and ${NAME} can be true or false"
    unquoted = type(Scalar(text=node.text, plain=True).content)
    if str in types and node.plain and node.printable and not option.like:
        return f'; if that is what is meant, quote it: "{node.printable[:60]}"'
    if not node.plain and not node.loose and unquoted in types:
        return "; take the quotes away"
    if bool in types and node.printable.lower() in ("yes", "no", "on", "off"):
        return f"; write {'true' if node.printable.lower() in ('yes', 'on') else 'false'}"
    if any(has_shape(one, Sequence) for one in types) and node.printable:
        return f"; put it in brackets: [{node.printable[:60]}]"
    return ""
