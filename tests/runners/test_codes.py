"""Every code is explained, where people read it and by `wherry explain`, and none that there is not."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import destinations
import origins
import runners
import stages
from origins.errors import WherryError
from runners.audits.finding import FOUND
from runners.codes import codes
from runners.command_line import cli

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (origins, stages, destinations, runners)


def errors(kind: type[WherryError] = WherryError) -> Iterator[type[WherryError]]:
    """The error and all that are derived from it."""
    yield kind
    for each in kind.__subclasses__():
        yield from errors(each)


def codes_of_errors() -> list[str]:
    """Of every kind of error that there is."""
    for folder in FOLDERS:
        for module in pkgutil.iter_modules(folder.__path__):
            if module.name not in ("conformance", "__main__"):
                importlib.import_module(f"{folder.__name__}.{module.name}")
    ours = [each for each in errors() if each.__module__.split(".")[0] in [folder.__name__ for folder in FOLDERS]]
    assert [each.__name__ for each in ours if "code" not in vars(each)] == []
    return [each.code for each in ours]


def codes_of_rows() -> set[str]:
    """That stand in our sources as the reason for which a row is refused."""
    files = [file for folder in FOLDERS[:3] for file in (ROOT / folder.__name__).glob("*.py")]
    sources = [file.read_text() for file in files if file.name != "conformance.py"]
    told = (
        r"""reason\("([A-Z_]+)"|Rule\(code="([A-Z_]+)"|'code', '([A-Z_]+)'|"(REQUIRE)": |^[A-Z]+_CODE = "([A-Z_]+)\""""
    )
    return {code for source in sources for found in re.findall(told, source, re.MULTILINE) for code in found if code}


def test_every_error_has_a_code_of_its_own_and_is_explained() -> None:
    """And so is every reason for which a row is refused, and what an audit finds; nothing else is."""
    known = codes_of_errors()
    assert sorted(known) == sorted(set(known))
    rows = codes_of_rows()
    assert {"PARSE", "CAST", "CHECK", "REQUIRE"} <= rows
    assert set(codes()) == {*known, *rows, *FOUND, "UNEXPECTED"}


def test_the_document_and_the_command_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the case of letters in which a code is typed."""
    text = (ROOT / "runners" / "CODES.md").read_text()
    assert cli.execute(["explain", "window"]) == 0
    heading, _, said = capsys.readouterr().out.partition("\n\n")
    assert heading == "WINDOW"
    assert f"### `WINDOW`\n{said}" in text
    assert "--set dlq.window=0" in said


def test_all_codes_are_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """For a program too."""
    assert cli.execute(["explain"]) == 0
    out = capsys.readouterr().out
    assert "OWNED           Another run has the pipeline, here or on another host.\n" in out
    assert "PARSE           The origin could not read it.\n" in out
    assert "STAGE_STOP      A stage with `on_error: stop` refused a row.\n" in out
    assert cli.execute(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["CAST"].startswith("A value cannot be converted")
    assert cli.execute(["explain", "CAST", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] == "CAST"


def test_an_unknown_code_may_be_the_name_of_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest one that there is stands beside it."""
    assert cli.execute(["explain", "WINDWO"]) == 2
    err = capsys.readouterr().err
    assert "did you mean 'WINDOW'?" in err
    assert "A rule of `require` has its own name as its code." in err


def test_the_commands_in_the_explanations_are_commands() -> None:
    """With options that they have."""
    from runners.command_line.commands import wherry

    for typed in re.findall(r"`wherry ([^`]+)`", " ".join(codes().values())):
        name, *words = typed.split()
        command = wherry.commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, typed
