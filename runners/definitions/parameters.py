"""What is put into a definition from outside: `--set`, `${NAME}`, `${NAME:-default}` and `${secret:NAME}`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runners.definitions.document import LARGEST, Fields, Items, Node, Scalar, below_key, decoded, parse, whole
from runners.definitions.problems import DefinitionError, Problem, nearest, shortened
from runners.definitions.scopes import AskScope, ask_databricks

_REFERENCE = re.compile(
    r"(?P<escaped>\$\$\{)"
    r"|\$\{(?:secret:(?P<secret>[A-Za-z_]\w*|[\w.@-]+/[\w.@-]+)|(?P<name>[A-Za-z_]\w*))(?P<default>:-[^}]*)?\}"
    r"|(?P<broken>\$\{[^}]{0,80}\}?)",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The values that a definition may ask for."""

    variables: Mapping[str, str]
    """What was given for this call; they win over the environment."""
    environment: Mapping[str, str]
    given_secrets: Mapping[str, str] = field(default_factory=dict)
    """Secrets that were given for this call; they win over the environment, and `${NAME}` does not find them."""
    ask_scope: AskScope = ask_databricks
    """Who is asked for the secrets of a Databricks scope."""
    needs_secrets: bool = True
    """Whether a secret that is missing is a problem; else its reference stays in its place."""
    problems: list[Problem] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """The secrets that were put in, each with the reference that is printed in its place."""

    def put_in(self, node: Node, path: str = "") -> Node:
        """The tree with all references resolved, in values that have nothing inside and nowhere else."""
        if isinstance(node, Fields):
            inside = {key: self.put_in(value, below_key(path, key)) for key, value in node.fields.items()}
            return dataclasses.replace(node, fields=inside)
        if isinstance(node, Items):
            return dataclasses.replace(
                node, items=[self.put_in(item, f"{path}[{at}]") for at, item in enumerate(node.items)]
            )
        return self._scalar(node, path) if "${" in node.text else node

    def _scalar(self, node: Scalar, path: str) -> Scalar:
        asked = [found for found in _REFERENCE.finditer(node.text) if not found.group("escaped")]
        text = _REFERENCE.sub(lambda found: self._value(found, node, path), node.text)
        shown = node.text if any(found.group("secret") for found in asked) else None
        if not whole(text):
            self._problem(
                node, path, f"expected text in UTF-8, got other bytes in a parameter of {shortened(node.text)}"
            )
        return dataclasses.replace(node, text=text, shown=shown, loose=node.loose or bool(asked))

    def _value(self, found: re.Match[str], node: Scalar, path: str) -> str:
        name, default = found.group("name"), found.group("default")
        if found.group("escaped"):
            return "${"
        if found.group("broken"):
            forms = "${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}"
            said = f"expected {forms}, got {shortened(found.group())}"
            self._problem(node, path, f"{said}; where these characters themselves are meant, write $${{")
        elif found.group("secret"):
            return self._secret(found.group("secret"), found, node, path)
        elif name in self.variables:
            return self.variables[name]
        elif self.environment.get(name) or (name in self.environment and default is None):
            return self.environment[name]
        elif default is not None:
            return default[2:]
        else:
            self._problem(node, path, f"the parameter {name} is missing{self._way_on(name)}")
        return found.group()

    def _secret(self, name: str, found: re.Match[str], node: Scalar, path: str) -> str:
        if found.group("default"):
            self._problem(node, path, f"a secret has no default, got {shortened(found.group())}")
        elif name in self.given_secrets or name in self.environment:
            return self._kept(self.given_secrets[name] if name in self.given_secrets else self.environment[name], found)
        elif "/" in name and self.needs_secrets:
            return self._scoped(name, found, node, path)
        elif self.needs_secrets:
            self._problem(
                node, path, f"the secret {name} is missing; set it in the environment, or give it by --secrets FILE"
            )
        return found.group()

    def _scoped(self, name: str, found: re.Match[str], node: Scalar, path: str) -> str:
        scope, _, key = name.partition("/")
        try:
            return self._kept(self.ask_scope(scope, key), found)
        except LookupError as error:
            why = error.args[0] if error.args else "it is not there"
            said = f"the secret {key} of the scope {scope} is missing: {why}; or give '{name}' by --secrets FILE"
            self._problem(node, path, said)
            return found.group()

    def _kept(self, secret: str, found: re.Match[str]) -> str:
        if secret:
            self.secrets[secret] = found.group()
        return secret

    def _way_on(self, name: str) -> str:
        near = nearest(name, self.variables) if self.variables else ""
        return f"; {near}" if near.startswith("did") else f"; give it by --var {name}=… or in the environment"

    def _problem(self, node: Scalar, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message, line=node.line, column=node.column))


def variables_in(file: Path) -> Mapping[str, str]:
    """The variables in a YAML file: a mapping of names to values. Raises DefinitionError for any other."""
    try:
        with file.open("rb") as opened:
            node = parse(decoded(opened.read(LARGEST + 1), file.name), file.name)
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


def overridden(node: Node, path: str, value: str) -> Node:
    """The tree with one value in another place, made where nothing stands yet. Raises ValueError that says why not."""
    return _set(node, _keys(path), "", value)


_PART = r"""(?:'[^']+'|"[^"]+"|[^.\['"]+)"""
_PATH = re.compile(rf"{_PART}(?:\.{_PART}|\[\d+\])*")


def _keys(path: str) -> list[str]:
    if not _PATH.fullmatch(path):
        raise ValueError(f"expected a path such as dlq.window or stages[0].filter, got {shortened(path)}")
    return [part.strip("[]'\"") for part in re.findall(rf"{_PART}|\[\d+\]", path)]


def _set(node: Node | None, keys: list[str], path: str, value: str) -> Node:
    if not keys:
        if isinstance(node, Fields | Items):
            raise ValueError(f"{path} is a {'mapping' if isinstance(node, Fields) else 'list'}; name one value inside")
        return Scalar(text=value, plain=True, loose=True)
    if isinstance(node, Items):
        at = int(keys[0]) if keys[0].isdecimal() else len(node.items)
        if at >= len(node.items):
            raise ValueError(f"{path} is a list of {len(node.items)}, counted from 0; it has no '{keys[0]}'")
        items = list(node.items)
        items[at] = _set(items[at], keys[1:], f"{path}[{at}]", value)
        return dataclasses.replace(node, items=items)
    if isinstance(node, Scalar) and not (node.plain and node.content is None):
        raise ValueError(f"{path} has nothing inside, so that '{keys[0]}' cannot be set")
    fields = dict(node.fields) if isinstance(node, Fields) else {}
    taken = next((n for n in range(len(keys), 0, -1) if ".".join(keys[:n]) in fields), 1)
    key = ".".join(keys[:taken])
    fields[key] = _set(fields.get(key), keys[taken:], below_key(path, key), value)
    return dataclasses.replace(node, fields=fields) if isinstance(node, Fields) else Fields(fields=fields)
