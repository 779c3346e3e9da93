"""The values that a definition gets from outside: `--set`, `${NAME}`, `${NAME:-default}` and `${secret:NAME}`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runners.definitions.dbutils import read_secret
from runners.definitions.document import (
    LARGEST,
    DefinitionError,
    Fields,
    Items,
    Node,
    Problem,
    Scalar,
    decode_text,
    is_writable_text,
    join_key,
    parse,
    suggest_nearest,
)
from runners.model.text import shorten

_REFERENCE = re.compile(
    r"(?P<escaped>\$\$\{)"
    r"|\$\{(?:secret:(?P<secret>[A-Za-z_]\w*|[\w.@-]+/[\w.@-]+)|(?P<name>[A-Za-z_]\w*))(?P<default>:-[^}]*)?\}"
    r"|(?P<broken>\$\{[^}]{0,80}\}?)",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The values that a definition may refer to."""

    variables: Mapping[str, str]
    """The values that were given for this call. They take precedence over the environment."""
    environment: Mapping[str, str]
    given_secrets: Mapping[str, str] = field(default_factory=dict)
    """The secrets that were given for this call.

    They take precedence over the environment, and `${NAME}` does not find them.
    """
    needs_secrets: bool = True
    """Whether a missing secret is a problem. If not, its reference stays in its place."""
    widgets: Mapping[str, str] | None = None
    """The values of a notebook's widgets, which take precedence over the environment. None outside of a notebook.

    `${secret:NAME}` does not find them.
    """
    problems: list[Problem] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """The secrets that were put in, each with the reference that is printed instead."""

    def put_in(self, node: Node, path: str = "") -> Node:
        """Return the tree with all references in single values resolved.

        References elsewhere, such as in keys, stay.
        """
        if isinstance(node, Fields):
            inside = {key: self.put_in(value, join_key(path, key)) for key, value in node.fields.items()}
            return dataclasses.replace(node, fields=inside)
        if isinstance(node, Items):
            return dataclasses.replace(
                node, items=[self.put_in(item, f"{path}[{at}]") for at, item in enumerate(node.items)]
            )
        return self._fill_scalar(node, path) if "${" in node.text else node

    def _fill_scalar(self, node: Scalar, path: str) -> Scalar:
        asked = [match for match in _REFERENCE.finditer(node.text) if not match.group("escaped")]
        text = _REFERENCE.sub(lambda match: self._find_value(match, node, path), node.text)
        shown = node.text if any(match.group("secret") for match in asked) else None
        if not is_writable_text(text):
            self._add_problem(
                node, path, f"expected text in UTF-8, got other bytes in a parameter of {shorten(node.text)}"
            )
        return dataclasses.replace(node, text=text, shown=shown, loose=node.loose or bool(asked))

    def _find_value(self, match: re.Match[str], node: Scalar, path: str) -> str:
        name, default = match.group("name"), match.group("default")
        if match.group("escaped"):
            return "${"
        if match.group("broken"):
            forms = "${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}"
            message = f"expected {forms}, got {shorten(match.group())}"
            self._add_problem(node, path, f"{message}; for these characters themselves, write $${{")
        elif match.group("secret"):
            return self._find_secret(match.group("secret"), match, node, path)
        elif name in self.variables:
            return self.variables[name]
        elif name in (self.widgets or {}):
            return (self.widgets or {})[name]
        elif self.environment.get(name) or (name in self.environment and default is None):
            return self.environment[name]
        elif default is not None:
            return default[2:]
        else:
            self._add_problem(node, path, f"the parameter {name} is missing{self._suggest_remedy(name)}")
        return match.group()

    def _find_secret(self, name: str, match: re.Match[str], node: Scalar, path: str) -> str:
        if match.group("default"):
            self._add_problem(node, path, f"expected a secret without a default, got {shorten(match.group())}")
        elif name in self.given_secrets or name in self.environment:
            return self._keep_secret({**self.environment, **self.given_secrets}[name], match)
        elif "/" in name and self.needs_secrets:
            return self._ask_scope(name, match, node, path)
        elif self.needs_secrets:
            self._add_problem(
                node, path, f"the secret {name} is missing; set it in the environment, or use --secrets FILE"
            )
        return match.group()

    def _ask_scope(self, name: str, match: re.Match[str], node: Scalar, path: str) -> str:
        scope, _, key = name.partition("/")
        try:
            return self._keep_secret(read_secret(scope, key), match)
        except LookupError as error:
            why = error.args[0] if error.args else "the scope has no such key"
            what = f"the secret {key} of the scope {scope} is missing: {why}"
            self._add_problem(node, path, f"{what}; or add '{name}' to a file for --secrets FILE")
            return match.group()

    def _keep_secret(self, secret: str, match: re.Match[str]) -> str:
        if secret:
            self.secrets[secret] = match.group()
        return secret

    def _suggest_remedy(self, name: str) -> str:
        near = suggest_nearest(name, self.variables) if self.variables else ""
        if near.startswith("did"):
            return f"; {near}"
        if self.widgets is not None:
            return f"; make a widget {name}, or give the job a parameter with this name"
        return f"; set it with --var {name}=… or in the environment"

    def _add_problem(self, node: Scalar, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message, line=node.line, column=node.column))


def find_job(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the ids of the job among these values, for the ledger and the labels."""
    names = {"id": "JOB_ID", "run": "JOB_RUN_ID"}
    return {key: given[name] for key, name in names.items() if given.get(name)}


def read_variables(file: Path) -> Mapping[str, str]:
    """Return the variables in a YAML file, which maps names to values. Raise `DefinitionError` for any other file."""
    try:
        with file.open("rb") as opened:
            node = parse(decode_text(opened.read(LARGEST + 1), file.name), file.name)
    except OSError as error:
        raise DefinitionError(str(file), [Problem(path="", message=f"cannot be read: {error.strerror}")]) from error
    if not isinstance(node, Fields):
        raise DefinitionError(file.name, [Problem(path="", message="expected a mapping of names to values")])
    problems = [
        Problem(path=name, message="expected one value, got a structure", line=value.line)
        for name, value in node.fields.items()
        if not isinstance(value, Scalar)
    ]
    if problems:
        raise DefinitionError(file.name, problems)
    return {name: value.text for name, value in node.fields.items() if isinstance(value, Scalar)}


def override_value(node: Node, path: str, value: str) -> Node:
    """Return the tree with another value at one place. Create the place if it is missing.

    Raise ValueError with the reason.
    """
    return _set_value(node, _split_path(path), "", value)


_PART = r"""(?:'[^']+'|"[^"]+"|[^.\['"]+)"""
_PATH = re.compile(rf"{_PART}(?:\.{_PART}|\[\d+\])*")


def _split_path(path: str) -> list[str]:
    if not _PATH.fullmatch(path):
        raise ValueError(f"expected a path such as dlq.window or stages[0].filter, got {shorten(path)}")
    return [part.strip("[]'\"") for part in re.findall(rf"{_PART}|\[\d+\]", path)]


def _set_value(node: Node | None, keys: list[str], path: str, value: str) -> Node:
    if not keys:
        if isinstance(node, Fields | Items):
            raise ValueError(f"{path} is a {'mapping' if isinstance(node, Fields) else 'list'}; name one value inside")
        return Scalar(text=value, plain=True, loose=True)
    if isinstance(node, Items):
        at = int(keys[0]) if keys[0].isdecimal() else len(node.items)
        if at >= len(node.items):
            raise ValueError(f"{path} is a list of {len(node.items)}, counted from 0; it has no '{keys[0]}'")
        items = list(node.items)
        items[at] = _set_value(items[at], keys[1:], f"{path}[{at}]", value)
        return dataclasses.replace(node, items=items)
    if isinstance(node, Scalar) and not (node.plain and node.content is None):
        raise ValueError(f"{path} has no options inside, so '{keys[0]}' cannot be set")
    fields = dict(node.fields) if isinstance(node, Fields) else {}
    taken = next((n for n in range(len(keys), 0, -1) if ".".join(keys[:n]) in fields), 1)
    key = ".".join(keys[:taken])
    fields[key] = _set_value(fields.get(key), keys[taken:], join_key(path, key), value)
    return dataclasses.replace(node, fields=fields) if isinstance(node, Fields) else Fields(fields=fields)
