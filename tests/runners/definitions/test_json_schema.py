"""The JSON schema of definitions accepts valid definitions, and refuses misspelled ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from runners.definitions.definition import CASES
from runners.definitions.document import parse, to_plain
from runners.definitions.first_pipeline import DEFINITION
from runners.definitions.json_schema import make_json_schema

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = make_json_schema()
NAMES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_a(value: Any, name: str) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in ("number", "integer"):
        return number and (name == "number" or isinstance(value, int))
    return isinstance(value, NAMES[name])


def fits(value: Any, schema: Any) -> bool:
    """Whether a value is valid. It knows the keywords that the schema uses, and fails for any other keyword."""
    checks: dict[str, Callable[[Any], bool]] = {
        "type": lambda names: any(is_a(value, name) for name in ([names] if isinstance(names, str) else names)),
        "enum": lambda values: value in values,
        "pattern": lambda pattern: not isinstance(value, str) or re.search(pattern, value) is not None,
        "$ref": lambda ref: fits(value, SCHEMA["$defs"][ref.removeprefix("#/$defs/")]),
        "anyOf": lambda schemas: any(fits(value, each) for each in schemas),
        "oneOf": lambda schemas: sum(fits(value, each) for each in schemas) == 1,
        "items": lambda each: not isinstance(value, list) or all(fits(item, each) for item in value),
        "required": lambda names: not isinstance(value, dict) or all(name in value for name in names),
        "properties": lambda known: all(fits(value[name], known[name]) for name in known if name in as_dict(value)),
        "additionalProperties": lambda other: all(
            other is not False and fits(each, other)
            for name, each in as_dict(value).items()
            if name not in schema.get("properties", {})
            and not any(re.search(pattern, name) for pattern in schema.get("patternProperties", {}))
        ),
        "patternProperties": lambda known: all(
            fits(value[name], each)
            for pattern, each in known.items()
            for name in as_dict(value)
            if re.search(pattern, name)
        ),
        "propertyNames": lambda each: all(fits(name, each) for name in as_dict(value)),
        "not": lambda schema: not fits(value, schema),
    }
    told = {"description", "title", "$schema", "$defs"}
    return all(checks[word](said) for word, said in schema.items() if word not in told)


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def list_definitions() -> list[str]:
    """Return the definitions of the README, the demo and the examples."""
    shown = re.findall(r"^```yaml\n(name: .*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    files = [file for file in (ROOT / "runners" / "examples").rglob("*.yaml") if not file.name.endswith(CASES)]
    examples = [file.read_text() for file in files]
    return [*shown, DEFINITION, *examples]


@pytest.mark.parametrize("text", list_definitions())
def test_the_shown_definitions_are_valid(text: str) -> None:
    """Users begin with these definitions."""
    assert fits(to_plain(parse(text, "x.yaml")), SCHEMA)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_files: 1 ", "max_flies: 1 "),
        ("format: json", "format: {}"),
        ("name: orders", "nam: orders"),
        ("window: 1000", "window: many"),
        ("- delta: {path: tables/orders}", "- dleta: {path: tables/orders}"),
        ("- delta: {path: tables/orders}", "- {delta: {path: tables/orders}, log: {}}"),
        ("- filter:", "- flter:"),
        ("- filter:", "- acme:Clean: {}\n    filter:"),
        ("destinations:", "destination:"),
    ],
)
def test_a_misspelled_definition_is_invalid(old: str, new: str) -> None:
    """The word may be a kind, beside a kind, or inside a kind."""
    assert old in DEFINITION
    assert not fits(to_plain(parse(DEFINITION.replace(old, new), "x.yaml")), SCHEMA)


def test_a_parameter_may_replace_any_value() -> None:
    """An editor does not know the parameter's value."""
    assert fits(to_plain(parse(DEFINITION.replace("window: 1000", "window: '${WINDOW}'"), "x.yaml")), SCHEMA)


def test_a_class_may_replace_a_kind() -> None:
    """An editor does not know the options of the class."""
    text = DEFINITION.replace("- filter:", "- when: a > 1\n    acme.stages:Clean:").replace("- delta:", "- acme:Queue:")
    assert text.count("acme") == 2
    assert fits(to_plain(parse(text, "x.yaml")), SCHEMA)


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """The schema has a description of each option."""
    assert cli.execute(["kinds", "--json-schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(SCHEMA))
    delta = printed["$defs"]["destination"]["properties"]["delta"]
    assert delta["properties"]["path"]["description"] == "The table's folder, relative to the definition; or a URL."
