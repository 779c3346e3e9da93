"""Every code is explained on the page of codes and by `wherry explain`, and no other codes are."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import destinations
import origins
import runners
import stages
from destinations.dlq import Dlq
from origins.batch import Json
from origins.errors import WherryError
from origins.problems import UnknownOption
from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.model.causes import CauseCounter
from runners.model.codes import ADVICE, find_advice, read_codes
from runners.model.errors import LimitTripped, Paused, RefusedLate, StageStopped, WindowTripped
from runners.model.nack_window import NackWindow
from runners.operations.audit.finding import FOUND
from tests.runners.engine.test_batch_machine import BATCH

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (origins, stages, destinations, runners)


def list_errors(kind: type[WherryError] = WherryError) -> Iterator[type[WherryError]]:
    """Yield this class of errors and all classes derived from it."""
    yield kind
    for each in kind.__subclasses__():
        yield from list_errors(each)


def list_error_codes(but: str = " ") -> list[str]:
    """Return the codes of all classes of errors, without those of modules that begin with `but`."""
    for folder in FOLDERS:
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            if not {"conformance", "__main__", "examples"} & {*module.name.split(".")}:
                importlib.import_module(module.name)
    ours = [each for each in list_errors() if each.__module__.split(".")[0] in [folder.__name__ for folder in FOLDERS]]
    without = [each for each in ours if "code" not in vars(each)]
    assert without == [UnknownOption]  # it is a DefinitionError that Python code may catch as a TypeError too
    return [each.code for each in ours if each not in without and not each.__module__.startswith(but)]


def find_row_codes() -> set[str]:
    """Return the codes in the sources that are reasons for which a row is refused."""
    files = [file for folder in FOLDERS for file in (ROOT / folder.__name__).glob("**/*.py")]
    sources = [file.read_text() for file in files if file.name != "conformance.py"]
    told = (
        r"""reason(?:_sql)?\("([A-Z_]+)"|Rule\(code="([A-Z_]+)"|'code', '([A-Z_]+)'|"(REQUIRE)": |code="'([A-Z_]+)'"|"""
        r"""^[A-Z]+_CODE = "([A-Z_]+)\""""
    )
    return {code for source in sources for found in re.findall(told, source, re.MULTILINE) for code in found if code}


def test_every_error_has_a_unique_code_and_an_explanation() -> None:
    """Reasons of refused rows and findings of an audit are explained too. No other codes are explained."""
    known = list_error_codes()
    assert sorted(known) == sorted(set(known))
    rows = find_row_codes()
    assert {"PARSE", "CAST", "CHECK", "REQUIRE"} <= rows
    assert set(read_codes()) == {*known, *rows, *FOUND, "UNEXPECTED"}


def test_the_page_and_the_command_show_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The case of letters in the typed code does not matter."""
    text = (ROOT / "runners" / "CODES.md").read_text()
    assert cli.execute(["explain", "window"]) == 0
    heading, _, said = capsys.readouterr().out.partition("\n\n")
    assert heading == "WINDOW"
    assert f"### `WINDOW`\n{said}" in text
    assert "--set dlq.window=0" in said


def test_all_codes_are_listed_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The list is also printed as JSON."""
    assert cli.execute(["explain"]) == 0
    out = capsys.readouterr().out
    assert "OWNED            Another run has the pipeline, here or on another host.\n" in out
    assert "PARSE            The origin could not read it.\n" in out
    assert "STAGE_STOP       A stage with `on_error: stop` refused a row.\n" in out
    assert cli.execute(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["codes"]["CAST"].startswith("A value cannot be converted")
    assert cli.execute(["explain", "CAST", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] == "CAST"


def test_an_unknown_code_may_be_the_name_of_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """The error also suggests the nearest code."""
    assert cli.execute(["explain", "WINDWO"]) == 2
    err = capsys.readouterr().err
    assert "There is no code 'WINDWO'. Did you mean 'WINDOW'? A rule of `require`" in err
    assert cli.execute(["explain", "nonsense"]) == 2
    assert "There is no code 'nonsense'. `wherry explain` lists all codes. A rule" in capsys.readouterr().err
    assert "A rule of `require` has its own name as its code." in err


def parse_command(typed: str) -> None:
    """Parse a command as a shell and the command line do, with values in the place of words such as FILE."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(typed)]
    command: click.Command = wherry
    context = command.make_context("wherry", [], resilient_parsing=True)
    assert words.pop(0) == "wherry"
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words, parent=context)


STANDS_FOR = {"FILE": "orders.yaml", "N": "3", "FIRST": "3", "LAST": "4", "JSON": "7", "TIME": "2026-01-31T06:00"}
COMMANDS = r"(?<![`\w])wherry (?:(?!  |\n|`|; ?$).)+"
"""A command in a text for the user. It ends before two spaces, the end of the line or a backtick."""


def find_commands(said: str) -> list[str]:
    """Return the commands that the text asks a user to type."""
    return [each.rstrip(" .;") for each in re.findall(COMMANDS, said)]


def test_the_commands_in_the_explanations_can_be_typed() -> None:
    """All their options exist."""
    typed = re.findall(r"`(wherry [^`]+)`", " ".join(read_codes().values()))
    assert len(typed) > 30
    for each in typed:
        parse_command(each)


def list_texts(source: str) -> Iterator[str]:
    """Yield the texts in a program, with 3 in the place of each inserted value."""
    inside = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(each) for each in node.values}
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "3" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def test_every_command_that_a_message_names_can_be_typed() -> None:
    """This includes every text in the sources with `FILE`, because a user types such a command."""
    files = [file for folder in FOLDERS for file in (ROOT / folder.__name__).rglob("*.py")]
    said = [text for file in files for text in list_texts(file.read_text(encoding="utf-8"))]
    typed = {each.rstrip(")") for text in said for each in find_commands(text) if " FILE" in each}
    assert len(typed) > 20
    for each in typed:
        parse_command(each)


def test_the_advice_after_an_error_can_be_typed() -> None:
    """The advice may repeat the failed command only if it also names a change to make first."""
    for code in sorted({*list_error_codes(but="runners.service"), "UNEXPECTED"}):
        said = ADVICE[code]
        parse_command(said.command)
        assert said.first or said.command.split()[1] not in ("run", "validate"), code
        assert said.first == "" or said.first.endswith("."), code


def test_a_code_of_another_version_gets_the_general_advice() -> None:
    """The message of such an error has the advice."""
    assert find_advice("NEWER") == ADVICE["FAILED"]


NACK: dict[str, Json] = {"stage": "cast", "message": "no", "row": {"id": 1}}
TRIPPED: dict[str, Any] = {"batch": BATCH, "nacks": [NACK]}


@pytest.mark.parametrize(
    "error",
    [
        WindowTripped(**TRIPPED, place=1, window=1, threshold=1),
        StageStopped(BATCH, stages=["cast"], nacks=[NACK]),
        LimitTripped(**TRIPPED, message="9 of its 10 rows"),
        LimitTripped(**TRIPPED, message="9 of its 10 rows", pauses=True),
        Paused("orders", since="noon", lane="0", number=3, reason="too many"),
        RefusedLate(BATCH, refusing="orders", having=["copy"], reason="no"),
    ],
    ids=lambda error: error.code,
)
def test_the_commands_that_an_error_names_can_be_typed(error: WherryError) -> None:
    """No command is the plain run that has failed."""
    typed = find_commands(error.hint)
    assert typed
    for each in typed:
        parse_command(each)
        assert each != "wherry run FILE"


def test_an_error_about_many_rows_lists_their_causes() -> None:
    """The causes are below the rows that it shows whole."""
    counter = CauseCounter()
    counter.add({"code": "CAST", "stage": "cast", "message": "column a: '1,5' is not an int"}, 700, ["x/a.csv"])
    causes = counter.count()
    for error in (
        WindowTripped(**TRIPPED, place=1, window=1, threshold=1, causes=causes),
        LimitTripped(**TRIPPED, message="700 of its 900 rows", causes=causes),
    ):
        assert error.message.splitlines()[-2:] == [
            "  all refused rows of the batch:",
            "    CAST, cast: a is not an int: 700 rows like '1,5' in a.csv",
        ]


@pytest.mark.parametrize(
    ("window", "threshold", "said"),
    [
        (1, 1, "the first refused row stops the run, because dlq.threshold is 1"),
        (1000, 1, "the first refused row stops the run, because dlq.threshold is 1"),
        (1000, 50, "50 of the last 1,000 rows were refused, which is the limit"),
    ],
)
def test_the_error_of_a_window_says_which_limit_was_reached(window: int, threshold: int, said: str) -> None:
    """With a threshold of 1 no window matters, so the message names none."""
    error = WindowTripped(**TRIPPED, place=1, window=window, threshold=threshold)
    assert error.message.splitlines()[2].strip() == said


@pytest.mark.parametrize(
    ("window", "threshold", "nacked"),
    [(1, 1, 1), (1, 1, 300), (1, 1, 990), (1000, 100, 1), (1000, 50, 700), (10, 10, 1)],
)
def test_the_suggested_window_accepts_the_batch(window: int, threshold: int, nacked: int) -> None:
    """Its threshold is above the present one, and no window of that length trips on as many refused rows in a row."""
    error = WindowTripped(**TRIPPED, place=1, window=window, threshold=threshold, nacked=nacked)
    offered = re.search(r"dlq: \{window: (\d+)(?:, threshold: (\d+))?\}", error.hint)
    assert offered is not None
    wider = Dlq(window=int(offered[1]), threshold=int(offered[2] or 1))
    before = NackWindow(nacks=tuple(range(1, threshold)), rows=threshold - 1)
    assert before.advance(nacked, range(1, nacked + 1), Dlq(window=window, threshold=threshold))[1] is not None
    assert before.advance(nacked, range(1, nacked + 1), wider)[1] is None
    assert wider.window == 0 or (wider.threshold > threshold and wider.window >= window)


def test_a_code_has_a_cause_checks_and_remedies() -> None:
    """Every item of the document is a check or a remedy."""
    for code in read_codes():
        cause, *items = re.split(r"\n- ", read_codes()[code])
        assert cause.endswith("."), code
        assert {item.partition(": ")[0] for item in items} == {"Check", "Remedy"}, code
