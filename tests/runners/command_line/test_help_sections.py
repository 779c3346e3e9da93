"""The headings and sentences of help texts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.command_line.help_sections import CommandFiles
from tests.pages import count_words
from tests.test_habits import LONGEST, WORDS

ROOT = Path(__file__).parents[3]

NOT_A_HEADING = re.compile(r"^(Usage:.*|  .*|)$")


def list_commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield all commands as they are typed, including `wherry` and its groups."""
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from list_commands(each, (*words, name))


ALL = list(list_commands(wherry))


def find_command(words: tuple[str, ...]) -> click.Command:
    found: click.Command = wherry
    for word in words:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


def read_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.execute([*words, "--help"]) == 0
    return capsys.readouterr().out


def list_headings(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if not NOT_A_HEADING.match(line)]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def test_each_option_has_one_phrase_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal has 80 columns, and no text is wrapped."""
    for words in ALL:
        lines = read_help(words, capsys).partition("Options:")[2].splitlines()
        rows = [line for line in lines if line.startswith("  ")]
        assert rows, words
        assert [line for line in rows if not re.fullmatch(r"  \S.*?\s{2,}[A-Z].*[^.]\.", line)] == [], words


def test_help_is_written_in_short_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence has at most 25 words, and no word of the list of unwanted words."""
    for words in ALL:
        said = read_help(words, capsys).partition("\n\n")[2].partition("Options:")[0]
        sentences = re.split(r"(?<=[.!?:])\s+|\n\s*\n", said)
        assert [each for each in sentences if count_words(each) > LONGEST or WORDS.search(each.lower())] == [], words


def test_options_are_below_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """Common options come first, and options for experts last."""
    shown = read_help(("backfill",), capsys)
    assert list_headings(shown) == [
        "Arguments:",
        "Options:",
        "Selection:",
        "Common options: --set, --var, --vars, --secrets, --quiet, --json, --log-format,",
        "--server",
        "`wherry --help` explains them.",
    ]
    experts = read_help(("run",), capsys).partition("For experts:")[2].partition("Common")[0]
    assert re.findall(r"--[a-z-]+", experts) == [
        "--moved",
        "--fresh",
        "--forget",
        "--assume",
        "--take-over",
    ]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A definition with two variables and a secret."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(
        'name: orders\norigin: {files: {path: "${PLACE}", format: json, schema: "id long"}}\n'
        'spark: {conf: {spark.app.name: "${secret:KEY}"}}\ndestinations: [{delta: {path: "${TABLE}"}}]\n'
    )
    (tmp_path / "vars.yaml").write_text("PLACE: from-file\nTABLE: table\n")
    (tmp_path / "secrets.yaml").write_text("KEY: hunter2\n")
    return "orders.yaml"


@pytest.mark.parametrize("before", range(0, 11, 2))
def test_common_options_stand_before_or_after_the_command(
    small: str, before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--var` and `--set` may be on both sides, and `--var` has priority over `--vars`."""
    given = ["--vars", "vars.yaml", "--var", "PLACE=landing", "--secrets", "secrets.yaml", "--var", "TABLE=other"]
    given += ["--set", "dlq.window=0"]
    assert cli.execute([*given[:before], "--json", "validate", small, *given[before:]]) == 0
    first = capsys.readouterr().out
    assert cli.execute([*given[:before], "validate", small, *given[before:], "--json"]) == 0
    assert first == capsys.readouterr().out
    assert [place in first for place in ("landing", "other", "from-file")] == [True, True, False]
    assert json.loads(first)["version"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "--var", "A=b"], "--var is for commands that read definitions."),
        (["--vars", "vars.yaml", "init"], "--vars is for commands that read definitions."),
        (["kinds", "--secrets", "secrets.yaml"], "--secrets is for commands that read definitions."),
        (["status", "--log-format", "json"], "--log-format is for commands that log progress."),
        (["--quiet", "status"], "--quiet is for commands that show progress."),
        (["kinds", "--set", "dlq.window=0"], "--set is for commands that read definitions."),
        (["--set", "dlq.window=0", "schedule", "."], "--set is for one definition."),
        (["report", "--index", ".", "--set", "dlq.window=0"], "--set is for one definition."),
        (["--var", "A=b", "doctor"], "--var is for a definition."),
    ],
)
def test_a_command_refuses_a_common_option_that_it_cannot_use(
    small: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does nothing then."""
    before = sorted(Path().iterdir())
    assert cli.execute(words) == 2
    assert said in capsys.readouterr().err
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["run"], ["--var", "--vars"]),
        (["demo"], []),
        (["dlq", "replay"], ["--var", "--vars"]),
        ([], ["--var", "--vars", "--version"]),
    ],
)
def test_a_shell_completes_common_options(words: list[str], completed: list[str]) -> None:
    """It offers those that the command can use."""
    found = ShellComplete(wherry, {}, "wherry", "_WHERRY_COMPLETE").get_completions(words, "--v")
    assert sorted(each.value for each in found) == completed


@pytest.mark.parametrize(
    "words", [("run",), ("dlq",), *((*each,) for each in ALL if each[:1] == ("dlq",))], ids=" ".join
)
def test_help_fits_a_screen(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A screen has 40 lines. A replay has more options than that."""
    lines = read_help(words, capsys).splitlines()
    assert len(lines) <= (42 if words == ("dlq", "replay") else 40)
    assert max(map(len, lines)) <= 80


def test_commands_are_below_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command is below one heading."""
    shown = read_help((), capsys)
    assert list_headings(shown) == [
        "Options:",
        "Start:",
        "Run:",
        "Look:",
        "Check and repair:",
        "Learn:",
        "Common options:",
    ]
    assert sorted(re.findall(r"^  (\w+)  ", shown.partition("Start:")[2], re.MULTILINE)) == sorted(wherry.commands)


def test_a_group_without_a_command_runs_its_first_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A file or an option may follow the group."""
    assert cli.execute(["dlq", "gone.yaml", "--no-such"]) == 2
    assert "Usage: wherry dlq show " in capsys.readouterr().err
    assert cli.execute(["dlq", "--no-such"]) == 2
    assert "Usage: wherry dlq show " in capsys.readouterr().err


def test_a_word_that_is_no_file_is_a_mistyped_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the nearest command."""
    assert cli.execute(["dlq", "shw"]) == 2
    assert "Did you mean 'show'?" in capsys.readouterr().err


LEAVES = [words for words in ALL if words and not isinstance(find_command(words), click.Group)]


def test_a_failed_call_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """It is on standard output, with a code and a message. Standard error has the message as text."""
    for words in LEAVES:
        assert cli.execute([*words, "--json", "--no-such-option"]) == 2, words
        out, err = capsys.readouterr()
        document = json.loads(out)
        assert (document["version"], document["error"]["code"]) == (1, "USAGE"), words
        assert "--no-such-option" in document["error"]["message"], words
        assert "--no-such-option" in err, words


def test_a_refusal_prints_one_json_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a code that `explain` knows, the message and the hint."""
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["status", "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert (error["code"], f"{error['message']}\n{error['hint']}\n") == ("REFUSED", err)
    (tmp_path / "orders.yaml").write_text("name: [1\n")
    assert cli.execute(["validate", "orders.yaml", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "DEFINITION"


def test_a_shell_completes_a_command_without_its_file() -> None:
    """A shell waits for the answer while a person types."""
    program = "\n".join(
        (
            "import sys, click",
            "from runners.command_line.commands import wherry",
            "found = wherry.shell_complete(click.Context(wherry), 're')",
            "print([each.value for each in found], [each.help for each in found][0])",
            "print([name for name in sys.modules if name.endswith(('_commands', '_command', 'pipeline'))])",
        )
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ("['resume', 'redo', 'report', 'repair'] Resume a pipeline that a limit has paused.\n[]\n")


def test_the_line_of_a_command_in_help_begins_its_own_help() -> None:
    """The table of commands and the file of each command say the same."""
    assert isinstance(wherry.commands, CommandFiles)
    for section in wherry.commands.sections.values():
        for name, (_, line) in section.items():
            assert str(wherry.commands[name].help).startswith(line)
