"""A mistyped option in Python gets the words of a definition, with the nearest name."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

import destinations
import origins
import runners
import stages
from runners import DefinitionError
from runners.definitions.kinds import CALLED, CONTRACTS, get_our_kinds
from runners.definitions.yaml_reader import read_options
from stages.pinned_table import PinnedTable

KINDS = [get_our_kinds().resolve(role, kind) for role in CONTRACTS for kind in get_our_kinds().list_names(role)]
SETTINGS: list[type[Any]] = [
    runners.Backfill,
    runners.BatchOptions,
    runners.Choice,
    runners.Dlq,
    runners.Fix,
    runners.Hook,
    runners.OperatorOverrides,
    runners.Pipeline,
    runners.Replay,
    runners.RetryOptions,
    runners.RunOptions,
    runners.ScheduleOptions,
    runners.SchemaState,
    runners.SparkOptions,
    PinnedTable,
]


@pytest.mark.parametrize("cls", [*KINDS, *SETTINGS], ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_mistyped_option_is_refused_with_the_nearest_name(cls: type[Any]) -> None:
    """This holds for each option of each kind, of a pipeline and of its settings. Other options may be missing."""
    options = [each for each in fields(cls) if each.init and not each.metadata.get("hidden")]
    names = [CALLED.get(each.name, each.name) for each in options]
    mistyped = [f"{name}{name[-1]}" for name in names]
    with pytest.raises(DefinitionError) as raised:
        cls(**dict.fromkeys(mistyped))
    assert [str(problem) for problem in raised.value.problems] == [
        f"{wrong}: unknown option; did you mean '{name}'?" for wrong, name in zip(mistyped, names, strict=True)
    ]


def test_python_and_a_definition_use_the_same_words() -> None:
    """Only the path differs, since an option in Python has no path."""
    given = {"runers": 2, "zzz": 3}
    with pytest.raises(DefinitionError) as in_yaml:
        read_options(runners.RunOptions, given, "run", "orders")
    with pytest.raises(DefinitionError) as in_python:
        runners.RunOptions(**given)  # type: ignore[arg-type]
    assert [str(each) for each in in_yaml.value.problems] == [f"run.{each}" for each in in_python.value.problems]


def test_the_error_names_the_class_and_the_name_of_the_object() -> None:
    """All mistyped options are in one error."""
    with pytest.raises(DefinitionError) as raised:
        runners.Pipeline(name="orders", runn={}, stagse=[])  # type: ignore[call-arg]
    assert raised.value.message.splitlines() == [
        "Pipeline 'orders': 2 problems",
        "  runn: unknown option; did you mean 'run'?",
        "  stagse: unknown option; did you mean 'stages'?",
    ]


def test_a_mistyped_option_is_still_a_type_error() -> None:
    """Code that handles the error of Python goes on to work."""
    with pytest.raises(TypeError, match="did you mean 'path'"):
        destinations.Delta(pth="x")  # type: ignore[call-arg]


def test_a_changed_copy_is_checked_as_well() -> None:
    """`dataclasses.replace` takes the same options."""
    with pytest.raises(DefinitionError, match="windw: unknown option; did you mean 'window'"):
        replace(runners.Dlq(), windw=3)  # type: ignore[call-arg]


def test_a_kind_of_a_person_is_checked_too() -> None:
    """A kind with an `__init__` of its own takes what that takes."""

    @dataclass(frozen=True, kw_only=True)
    class Loud(stages.Cast):
        volume: int

    class Open(stages.Cast):
        def __init__(self, **given: str) -> None:
            super().__init__(columns=given)

    with pytest.raises(DefinitionError, match="volum: unknown option; did you mean 'volume'"):
        Loud(columns={}, volum=3)  # type: ignore[call-arg]
    assert Open(amount="int").columns == {"amount": "int"}


def test_objects_are_copied_as_before(tmp_path: Path) -> None:
    """They travel to the workers of Spark."""
    made = origins.Files(path=str(tmp_path), format="json")
    assert [copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))] == [made] * 3  # noqa: S301
