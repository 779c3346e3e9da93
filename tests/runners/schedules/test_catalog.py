"""Definitions that are valid alone, but may be invalid together."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from runners.definitions.definition import Definition, DefinitionsFolder, list_definitions, load
from runners.model.errors import Refusal
from runners.schedules.schedule_plan import ScheduleCatalog, name_file
from tests.runners.engine.toys import TOYS

BODY = "origin: {folder: {path: landing}}\ndestinations: [{table: {table: main.orders}}]\n"


def make_catalog(folder: Path, **schedules: str) -> ScheduleCatalog:
    """Return the catalog of definitions with these schedules."""
    for name, schedule in schedules.items():
        text = f"schedule: {schedule}\n" if schedule else ""
        (folder / f"{name}.yaml").write_text(f"name: {name}\n{BODY}{text}")
    return ScheduleCatalog.of({f"{name}.yaml": load(folder / f"{name}.yaml", kinds=TOYS) for name in schedules})


def test_pipelines_with_and_without_a_schedule_are_separated(tmp_path: Path) -> None:
    """A pipeline without a schedule is run by hand."""
    found = make_catalog(tmp_path, orders="{every: 5m}", prices="{after: orders}", odd="")
    assert sorted(found.scheduled) == ["orders", "prices"]
    assert [name_file(each) for each in found.by_hand.values()] == ["odd.yaml"]
    assert found.broken == {}


def test_a_cycle_names_all_pipelines_in_it(tmp_path: Path) -> None:
    """None of them is scheduled. A pipeline that waits for one of them is scheduled."""
    found = make_catalog(tmp_path, a="{after: b}", b="{after: c}", c="{after: a}", d="{after: a}", e="{every: 1h}")
    assert found.broken == {
        "a.yaml": "schedule.after: it waits for itself: a → b → c → a",
        "b.yaml": "schedule.after: it waits for itself: b → c → a → b",
        "c.yaml": "schedule.after: it waits for itself: c → a → b → c",
    }
    assert sorted(found.scheduled) == ["d", "e"]


def test_a_pipeline_that_waits_for_an_unknown_one_is_reported(tmp_path: Path) -> None:
    """The message has the nearest name, or states that the other pipeline never runs here."""
    found = make_catalog(tmp_path, orders="{after: price}", prices="{every: 1h}", late="{after: odd}", odd="")
    assert found.broken == {
        "orders.yaml": "schedule.after: there is no pipeline 'price' here; did you mean 'prices'?",
        "late.yaml": "schedule.after: odd has no schedule, so it never runs here",
    }
    assert make_catalog(tmp_path, orders="{after: prices}").broken == {
        "orders.yaml": "schedule.after: 'prices' is not here"
    }


def test_only_the_first_of_two_pipelines_with_one_name_is_scheduled(tmp_path: Path) -> None:
    """The files are sorted by name. The other file is reported as broken."""
    for file in ("b.yaml", "a.yaml"):
        (tmp_path / file).write_text(f"name: orders\n{BODY}schedule: {{every: 5m}}\n")
    found = ScheduleCatalog.of({file: load(tmp_path / file, kinds=TOYS) for file in ("b.yaml", "a.yaml")})
    assert [each.path for each in found.scheduled.values()] == [tmp_path / "a.yaml"]
    assert found.broken == {"b.yaml": "orders is the name of the pipeline in a.yaml already"}


def test_a_definition_that_is_no_regular_file_is_broken(tmp_path: Path) -> None:
    """A named pipe is not opened, since that may block. The other definitions are read."""
    (tmp_path / "good.yaml").write_text(f"name: good\n{BODY}")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "circle.yml").symlink_to("circle.yml")
    (tmp_path / "gone.yml").symlink_to("nothing")
    folder = DefinitionsFolder(path=tmp_path, load=partial(load, kinds=TOYS))
    found = folder.open()
    assert sorted(found) == ["circle.yml", "good.yaml", "pipe.yaml"]
    assert "Too many levels of symbolic links" in str(found["circle.yml"])
    assert isinstance(found["good.yaml"], Definition)
    assert str(found["pipe.yaml"]).startswith("pipe.yaml: expected a regular file")
    (tmp_path / "circle.yml").unlink()
    assert folder.find_changes() == {name: found[name] for name in ("good.yaml", "pipe.yaml")}


def test_a_directory_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the reason."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(Refusal, match="cannot be listed: Permission denied"):
        DefinitionsFolder(path=tmp_path, load=load).open()


def test_files_of_cases_are_not_definitions(tmp_path: Path) -> None:
    """Neither a schedule nor a list of the folder reads them."""
    (tmp_path / "good.yaml").write_text(f"name: good\n{BODY}")
    (tmp_path / "good.test.yaml").write_text("cases: [{name: a, rows: [{id: 1}], delivered: 1}]\norigin: x\n")
    folder = DefinitionsFolder(path=tmp_path, load=partial(load, kinds=TOYS))
    assert list(folder.open()) == ["good.yaml"]
    assert list_definitions(tmp_path) == [tmp_path / "good.yaml"]
