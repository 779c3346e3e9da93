"""Parameters, secrets and overrides of a definition."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.definitions.document import DefinitionError, Scalar, parse, to_plain
from runners.definitions.parameters import Parameters, override_value, read_variables


def put_in(
    text: str, variables: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[object, list[str]]:
    parameters = Parameters(variables=variables or {}, environment=environment or {})
    node = parameters.put_in(parse(text, "x.yaml"))
    return to_plain(node), [str(problem) for problem in parameters.problems]


@pytest.mark.promise("SS-25")
def test_a_parameter_is_replaced_in_any_value() -> None:
    """A value may have several. Parameters in names are not replaced."""
    got = put_in('a: ${X}\nb: ["x/${X}/${Y}/z"]\n${X}: c\n', {"X": "1", "Y": "two"})
    assert got == ({"a": 1, "b": ["x/1/two/z"], "${X}": "c"}, [])


def test_given_values_override_the_environment_and_defaults() -> None:
    """As in a shell, an empty variable counts as missing if there is a default."""
    text = "{a: '${A:-0}', b: '${B:-0}', c: '${C:-0}', d: '${D:-}', e: '${E:-0}', f: '${E}'}"
    got, problems = put_in(text, {"A": "1"}, {"A": "2", "B": "2", "E": ""})
    assert got == {"a": "1", "b": "2", "c": "0", "d": "", "e": "0", "f": ""}
    assert problems == []


def test_a_value_never_becomes_structure() -> None:
    """Parameters are replaced once, after the text was parsed."""
    got, _ = put_in("a: ${X}\nb: ${Y}", {"X": "[1, 2]\nc: d", "Y": "${X}"})
    assert got == {"a": "[1, 2]\nc: d", "b": "${X}"}


def test_two_dollars_are_an_escaped_dollar() -> None:
    """A dollar without a brace is an ordinary character."""
    assert put_in("a: $${X}-${X}-$X-5$", {"X": "1"}) == ({"a": "${X}-1-$X-5$"}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: [{b: '${LIMIT}'}]",
            "a[0].b: the parameter LIMIT is missing; set it with --var LIMIT=… or in the environment",
        ),
        ("a: ${LIMTI}", "a: the parameter LIMTI is missing; did you mean 'LIMITS'?"),
        ("a: ${secret:KEY}", "a: the secret KEY is missing; set it in the environment, or use --secrets FILE"),
        ("a: ${secret:KEY:-x}", "a: expected a secret without a default, got '${secret:KEY:-x}'"),
        (
            "a: ${a-b}",
            "a: expected ${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}, got '${a-b}'; for these",
        ),
        ("a: x${", "a: expected ${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}, got '${'"),
        ("a: ${X:=5}", "a: expected ${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}, got '${X:=5}'"),
        ("a: ${}", "a: expected ${NAME}, ${NAME:-default}, ${secret:NAME} or ${secret:scope/key}, got '${}'"),
    ],
)
def test_an_invalid_parameter_is_reported_with_its_name(text: str, said: str) -> None:
    """The message states how to set it."""
    variables = {"LIMITS": "1"} if "LIMTI" in text else {}
    _, problems = put_in(text, variables)
    assert len(problems) == 1
    assert problems[0].startswith(said)


def test_secrets_come_only_from_the_environment() -> None:
    """A secret on the command line would be visible in the list of processes."""
    parameters = Parameters(variables={"KEY": "wrong"}, environment={"KEY": "hunter2"})
    assert to_plain(parameters.put_in(parse("a: user:${secret:KEY}@host", "x.yaml"))) == {"a": "user:hunter2@host"}
    assert parameters.secrets == {"hunter2": "${secret:KEY}"}


class Scopes:
    """Databricks' secrets, with a record of the requested ones."""

    def __init__(self, **kept: str) -> None:
        self.kept = kept
        self.asked: list[tuple[str, str]] = []

    def get(self, scope: str, key: str) -> str:
        self.asked.append((scope, key))
        if key not in self.kept:
            raise RuntimeError(f"Secret does not exist with scope: {scope} and key: {key}\nat com.databricks.Thing")
        return self.kept[key]


def put_in_scoped(
    text: str, monkeypatch: pytest.MonkeyPatch, scopes: Scopes | None, **given: str
) -> tuple[Any, Parameters]:
    """Read the text in a notebook with or without `dbutils`."""
    notebook = SimpleNamespace(dbutils=SimpleNamespace(secrets=scopes)) if scopes else SimpleNamespace()
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    parameters = Parameters(variables={}, environment={}, given_secrets=given)
    return to_plain(parameters.put_in(parse(text, "x.yaml"))), parameters


def test_a_secret_of_a_databricks_scope_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook's `dbutils` reads it. It is masked like any secret."""
    scopes = Scopes(**{"db-password.1": "hunter2"})
    found, parameters = put_in_scoped('a: "user:${secret:shop@prod/db-password.1}@host"', monkeypatch, scopes)
    assert found == {"a": "user:hunter2@host"}
    assert parameters.secrets == {"hunter2": "${secret:shop@prod/db-password.1}"}
    assert scopes.asked == [("shop@prod", "db-password.1")]


def test_a_given_secret_is_not_read_from_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a definition for Databricks runs anywhere."""
    scopes = Scopes(key="wrong")
    assert put_in_scoped("a: ${secret:shop/key}", monkeypatch, scopes, **{"shop/key": "given"})[0] == {"a": "given"}
    assert scopes.asked == []


@pytest.mark.parametrize(
    ("scopes", "why"),
    [
        (None, "Databricks is not available here"),
        (Scopes(other="x"), "Databricks says: Secret does not exist with scope: shop and key: key"),
    ],
)
def test_a_missing_secret_of_a_scope_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, scopes: Scopes | None, why: str
) -> None:
    """The message states how else it can be given."""
    _, parameters = put_in_scoped("a: ${secret:shop/key}", monkeypatch, scopes)
    said = f"a: the secret key of the scope shop is missing: {why}; or add 'shop/key' to a file for --secrets FILE"
    assert [str(problem) for problem in parameters.problems] == [said]


def test_no_scope_is_read_if_secrets_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value has the secret's reference."""
    scopes = Scopes(key="x")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(dbutils=SimpleNamespace(secrets=scopes)))
    parameters = Parameters(variables={}, environment={}, needs_secrets=False)
    assert to_plain(parameters.put_in(parse("a: ${secret:shop/key}", "x.yaml"))) == {"a": "${secret:shop/key}"}
    assert scopes.asked == []


def test_bytes_that_are_no_text_are_refused() -> None:
    """A variable of the environment may have any bytes."""
    _, problems = put_in("a: ${X}", {}, {"X": os.fsdecode(b"\xff")})
    assert problems == ["a: expected text in UTF-8, got other bytes in a parameter of '${X}'"]


@given(st.text(alphabet="${}secrt:-AB_ x\\", max_size=40))
def test_any_text_comes_out_as_text(text: str) -> None:
    """Dollars and braces may be at any place."""
    parameters = Parameters(variables={"A": "1"}, environment={"B": "2"})
    node = parameters.put_in(Scalar(text=text))
    assert isinstance(node, Scalar)
    assert parameters.problems or "${A}" not in node.text.replace("$${A}", "")


def test_variables_may_be_in_a_file(tmp_path: Path) -> None:
    """It is a mapping of names to values. Each value is read as text."""
    file = tmp_path / "vars.yaml"
    file.write_text("X: 1\nY: no\nZ:\n")
    assert read_variables(file) == {"X": "1", "Y": "no", "Z": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [("- a", "a mapping of names to values"), ("X: [1]", "X: expected one value"), ("X: [", "not YAML")],
)
def test_an_invalid_file_of_variables_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """A variable cannot be a list or a mapping."""
    file = tmp_path / "vars.yaml"
    file.write_text(text)
    with pytest.raises(DefinitionError, match=said):
        read_variables(file)
    with pytest.raises(DefinitionError, match="cannot be read: No such file"):
        read_variables(tmp_path / "gone.yaml")


DOCUMENT = "a: {b: 1, c.d: 2}\nl: [x, {y: 1}]\nn:\n"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("a.b", "5", {"a": {"b": 5, "c.d": 2}, "l": ["x", {"y": 1}], "n": None}),
        ("a.c.d", "5", {"a": {"b": 1, "c.d": 5}, "l": ["x", {"y": 1}], "n": None}),
        ("a.'e.f'", "x: y", {"a": {"b": 1, "c.d": 2, "e.f": "x: y"}, "l": ["x", {"y": 1}], "n": None}),
        ("l.0", "z", {"a": {"b": 1, "c.d": 2}, "l": ["z", {"y": 1}], "n": None}),
        ("l[1].y", "", {"a": {"b": 1, "c.d": 2}, "l": ["x", {"y": None}], "n": None}),
        ("n.o.p", "true", {"a": {"b": 1, "c.d": 2}, "l": ["x", {"y": 1}], "n": {"o": {"p": True}}}),
        ("new", "[1]", {"a": {"b": 1, "c.d": 2}, "l": ["x", {"y": 1}], "n": None, "new": "[1]"}),
    ],
)
def test_set_replaces_one_value(path: str, value: str, expected: object) -> None:
    """The path is written as in messages. Missing mappings on the way are created."""
    assert to_plain(override_value(parse(DOCUMENT, "x.yaml"), path, value)) == expected


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a", "a is a mapping; name one value inside"),
        ("l", "l is a list; name one value inside"),
        ("l.2", "l is a list of 2, counted from 0; it has no '2'"),
        ("l.x", "l is a list of 2, counted from 0; it has no 'x'"),
        ("a.b.c", "a.b has no options inside, so 'c' cannot be set"),
        ("l[0].c", "l[0] has no options inside, so 'c' cannot be set"),
        ("", "expected a path such as dlq.window or stages[0].filter, got ''"),
        ("a..b", "expected a path"),
        ("a.", "expected a path"),
        ("a[x]", "expected a path"),
        ("a" * 60 + ".", "expected a path"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, said: str) -> None:
    """Nothing is guessed, and a long path is refused fast."""
    with pytest.raises(ValueError, match=re.escape(said)):
        override_value(parse(DOCUMENT, "x.yaml"), path, "1")
