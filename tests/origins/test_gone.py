"""The sentences about things that are gone from Wherry."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest

import destinations
import origins
from origins.gone import GONE, name_option
from origins.problems import DefinitionError, UnknownOption
from runners.command_line import cli
from runners.definitions.definition import load
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from stages.query import Query
from stages.rows import Rows, take_live

HOLDERS = {
    "batch": "run: {batch: {OPTION: 1}}",
    "dlq": "dlq: {OPTION: 1}",
    "run": "run: {OPTION: 1}",
    "spark": "spark: {OPTION: 1}",
}
"""Where a definition has the options of a holder."""


@pytest.mark.parametrize("name", [name for name in GONE if name.startswith("wherry")])
def test_a_command_says_what_to_use_in_its_place(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """This is also true of an option of a command."""
    assert cli.execute([*name.split()[1:], "x"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert GONE[name] in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", [name for name in GONE if name.partition(".")[0] in HOLDERS])
def test_a_definition_says_what_to_use_in_place_of_an_option(name: str, tmp_path: Path) -> None:
    """The sentence is the error of the option."""
    holder, _, option = name.partition(".")
    given = HOLDERS[holder].replace("OPTION", option)
    path = tmp_path / "orders.yaml"
    path.write_text(f"name: orders\norigin: {{generate: {{rows: 1}}}}\ndestinations: [{{discard: {{}}}}]\n{given}")
    with pytest.raises(DefinitionError) as raised:
        load(path)
    assert [GONE[name] in problem.message for problem in raised.value.problems] == [True]


@pytest.mark.parametrize("name", [name for name in GONE if name.startswith("Pipeline.")])
def test_a_pipeline_says_which_method_does_the_same_now(name: str) -> None:
    """The sentence is the error of the attribute. It names a method that the pipeline has."""
    pipeline = Pipeline(name="orders", origin=origins.Generate(rows=1), destinations=[destinations.Discard()])
    with pytest.raises(AttributeError, match=re.escape(f"`{name}` is gone from Wherry. {GONE[name]}")):
        getattr(pipeline, name.removeprefix("Pipeline."))
    (instead,) = re.findall(r"`pipeline\.([\w.]+)\(…\)`", GONE[name])
    assert callable(attrgetter(instead)(pipeline))


@pytest.mark.parametrize("name", [name for name in GONE if name.startswith("Rows.")])
def test_rows_say_what_does_the_same_now(name: str) -> None:
    """The sentence is the error of the attribute. It names a function that exists, or a method that rows have."""
    rows = Rows(query=Query(cast("Any", None)), names=(), labels={}, materialise=take_live)
    with pytest.raises(AttributeError, match=re.escape(f"`{name}` is gone from Wherry. {GONE[name]}")):
        getattr(rows, name.removeprefix("Rows."))
    for module, function in re.findall(r"`(stages\.\w+)\.(\w+)\(…\)`", GONE[name]):
        assert callable(getattr(importlib.import_module(module), function))
    for method in re.findall(r"`rows\.(\w+)\(…\)`", GONE[name]):
        assert callable(getattr(rows, method))


def test_an_unknown_attribute_of_a_pipeline_raises_as_for_any_other_class() -> None:
    """Such an error of a property stays as it is."""

    class Own(Pipeline):
        @property
        def total(self) -> object:
            return object().total  # type: ignore[attr-defined]

    own = Own(name="orders", origin=origins.Generate(rows=1), destinations=[destinations.Discard()])
    for name, owner in (("lane", "Own"), ("total", "object")):
        with pytest.raises(AttributeError, match=f"'{owner}' object has no attribute '{name}'"):
            getattr(own, name)


@pytest.mark.parametrize("option", [name.partition(".")[2] for name in GONE if name.startswith("choice.")])
def test_a_class_says_what_to_use_in_place_of_an_option(option: str) -> None:
    """The sentence is the error of the option."""
    with pytest.raises(UnknownOption) as raised:
        Choice(**{option: "x"})  # type: ignore[arg-type]
    assert GONE[f"choice.{option}"] in str(raised.value)


@pytest.mark.parametrize(
    ("holder", "name"),
    [("dlq", "dlq.weigh"), ("origins[2]", "origins.weigh"), ("BatchOptions", "batch.weigh"), ("Dlq", "dlq.weigh")],
)
def test_a_holder_has_one_name_in_yaml_and_in_python(holder: str, name: str) -> None:
    """An error of either finds the same sentence."""
    assert name_option(holder, "weigh") == name
