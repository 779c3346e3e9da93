"""A pipeline made in Python takes the option `run` of a definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import destinations
import origins
from runners import BatchOptions, DefinitionError, Pipeline, RetryOptions, RunOptions
from runners.model.spec import PipelineSpec


def make_orders(run: RunOptions | Mapping[str, Any] | None = None) -> Pipeline:
    return Pipeline(name="orders", origin=origins.Generate(rows=1), destinations=[destinations.Discard()], run=run)


def test_run_is_given_as_options_or_as_a_mapping() -> None:
    """Both give the same pipeline. The method `run` still exists."""
    options = RunOptions(runners=2, batch=BatchOptions(rows=10), retry=RetryOptions(also=("busy",)))
    made = make_orders({"runners": 2, "batch": {"rows": 10}, "retry": {"also": ["busy"]}})
    assert made == make_orders(options)
    assert made.run_options == options
    assert make_orders().run_options == RunOptions()
    assert callable(made.run)


def test_run_is_the_same_in_yaml(tmp_path: Path) -> None:
    """It has the same words."""
    (tmp_path / "orders.yaml").write_text(
        "name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{discard: {}}]\nrun: {lease: 30s, snapshot: 0}\n"
    )
    loaded = Pipeline.load(tmp_path / "orders.yaml")
    assert loaded.run_options == make_orders({"lease": "30s", "snapshot": 0}).run_options


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"runers": 2}, ["run.runers: unknown option; did you mean 'runners'?"]),
        ({"runners": "two"}, ["run.runners: expected a whole number, got the text 'two'"]),
        (
            {"batch": {"rows": "x"}, "lease": 3},
            ["run.batch.rows: expected a whole number", "run.lease: expected text such as 30s, got the number 3"],
        ),
        ({"batch": object()}, ["run: expected a mapping of YAML values, got Object of type object"]),
    ],
)
def test_an_invalid_option_of_run_is_reported_as_in_yaml(run: Mapping[str, Any], said: list[str]) -> None:
    """All problems are reported at once, each with its path."""
    with pytest.raises(DefinitionError, match=r"Pipeline 'orders': \d problem") as raised:
        make_orders(run)
    assert [problem for problem in said if problem not in raised.value.message] == []


def test_a_pipeline_is_changed_with_replace() -> None:
    """Fields that are not named stay the same."""
    made = make_orders({"runners": 2})
    assert dataclasses.replace(made, name="others").run_options == made.run_options
    assert dataclasses.replace(made, run_options=RunOptions()) == make_orders()


def test_a_pipeline_takes_each_field_of_its_definition() -> None:
    """No field of a `PipelineSpec` is missing."""
    spec = PipelineSpec(
        name="orders",
        origins=[origins.Generate(name="a", rows=1)],
        destinations=[destinations.Discard()],
        delivery="after_any",
        protect=["email"],
        state="there",
        run_options=RunOptions(runners=3),
        secrets={"x": "${secret:X}"},
    )
    made = Pipeline.of(spec)
    assert {each.name: getattr(made, each.name) for each in dataclasses.fields(made)} == vars(spec)
