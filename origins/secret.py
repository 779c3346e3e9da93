"""Values that contain a secret. Code uses the value, and what is shown or stored has its reference instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeVar

N = TypeVar("N", bound="NotedValue")
S = TypeVar("S", bound="_Secret")

SHORT = 6
"""A secret with fewer characters is masked only as a whole word."""
CUT = "…"
"""The mark at the end of a shortened text."""
EXCERPT = 80
"""The most characters of a value that a message shows."""


class NotedValue:
    """A plain value with a note beside it. Copies in other processes have only the plain value."""

    def __reduce__(self) -> tuple[Any, ...]:
        plain: Any = type(self).__mro__[-2]  # the built-in type, directly before `object`
        return plain, (plain(self),)

    def __deepcopy__(self: N, memo: object) -> N:
        return self


class _Secret(NotedValue):
    """A plain value that contains a secret."""

    reference: str

    def __new__(cls: type[S], value: Any, reference: str) -> S:
        made: S = super().__new__(cls, value)  # type: ignore[call-arg]
        made.reference = reference
        return made

    def __repr__(self) -> str:
        return repr(self.reference)


class SecretText(_Secret, str):
    """A text of a definition that contains a secret. `reference` is the same text with `${secret:NAME}` in it."""

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> SecretText:
        return SecretText(super().replace(old, new, count), self.reference.replace(old, new, count))


class SecretInt(_Secret, int):
    """A whole number that is a secret."""

    __str__ = int.__repr__


class SecretFloat(_Secret, float):
    """A number that is a secret."""

    __str__ = float.__repr__


SECRET = (SecretText, SecretInt, SecretFloat)


def make_secret(value: str | int | float, reference: str) -> SecretText | SecretInt | SecretFloat:
    """Return the value with its reference. A boolean is no secret and becomes text."""
    if isinstance(value, float):
        return SecretFloat(value, reference)
    if isinstance(value, int) and not isinstance(value, bool):
        return SecretInt(value, reference)
    return SecretText(str(value), reference)


def put_references(value: Any) -> Any:
    """Return the value with each secret value in it, at any depth, replaced by its reference."""
    if isinstance(value, SECRET):
        return value.reference
    if isinstance(value, Mapping):
        return {key: put_references(inner) for key, inner in value.items()}
    return type(value)(map(put_references, value)) if type(value) in (list, tuple) else value


def cut_text(text: str, most: int) -> str:
    """Return the text, shortened if it is longer than `most`. Secrets must be masked before the cut."""
    return text if len(text) <= most else text[:most] + CUT


def make_mask(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces each secret in a text with its reference.

    It also finds a secret that is quoted, or cut by `cut_text`. A secret of fewer than `SHORT` characters is replaced
    only as a whole word.
    """
    forms = _list_forms(secrets)
    known = {**dict(forms), **{reference: reference for reference in secrets.values()}}
    patterns = [*map(re.escape, secrets.values()), *(_make_pattern(form) for form, _ in forms)]
    found = re.compile("|".join(patterns)) if forms else None

    def mask(text: str) -> str:
        if found is None:
            return text
        head, *rest = found.sub(lambda each: known[each.group()], text).split(CUT)
        for tail in rest:
            head = f"{_mask_begun(forms, head)}{CUT}{tail}"
        return head

    return mask


def list_mask_steps(secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the same as consecutive steps of SQL's `regexp_replace`, for text that is cut after `EXCERPT` characters.

    A step first replaces a secret with a mark, so that no step changes a reference.
    """
    references = list(dict.fromkeys(secrets.values()))
    marks = {reference: f"\ue000{number}\ue001" for number, reference in enumerate(references)}
    forms = _list_forms(secrets)
    steps = [(re.escape(reference), marks[reference]) for reference in references]
    steps += [(_make_pattern(form), marks[reference]) for form, reference in forms]
    for form, reference in forms:
        begun = [re.escape(form[:length]) for length in range(min(len(form) - 1, EXCERPT), SHORT - 1, -1)]
        steps += [(f"(?:{'|'.join(begun)})(?={CUT})", marks[reference])] if begun else []
    return steps + [(mark, re.sub(r"[\\$]", r"\\\g<0>", reference)) for reference, mark in marks.items()]


def _list_forms(secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the forms in which the secrets may be written, the longest first.

    These are the secret itself, its quoted forms in Python and JSON, its lines joined into one, and each of its lines.
    """
    found: dict[str, str] = {}
    for secret, reference in secrets.items():
        lines = [line.strip() for line in secret.splitlines()]
        parts = [" ".join(secret.split()), *(line for line in lines if len(line) >= SHORT or len(lines) == 1)]
        for form in (secret, repr(str(secret))[1:-1], json.dumps(secret)[1:-1], *parts):
            found.setdefault(form, reference)
    return sorted(((form, found[form]) for form in found if form.strip()), key=lambda each: len(each[0]), reverse=True)


def _make_pattern(form: str) -> str:
    """Return a pattern that finds the form, in the syntax that Python and Java share."""
    pattern = re.escape(form)
    return pattern if len(form) >= SHORT else rf"(?<![0-9A-Za-z_]){pattern}(?![0-9A-Za-z_])"


def _mask_begun(forms: Sequence[tuple[str, str]], text: str) -> str:
    """Return the text, which was cut at its end, without the beginning of a secret there."""
    for form, reference in forms:
        for length in range(min(len(form) - 1, len(text)), SHORT - 1, -1):
            if text.endswith(form[:length]):
                return text[:-length] + reference
    return text
