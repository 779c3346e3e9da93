"""Pages of the documentation: their blocks, which are run, and their sentences."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from runners.command_line.cli import execute
from runners.definitions.definition import load
from runners.definitions.first_pipeline import make

ROOT = Path(__file__).parents[1]
FOLDERS = ("origins", "stages", "destinations", "runners")
GUIDES = sorted((ROOT / "runners/docs").glob("[!d]*/*.md"))
"""Tutorials, how-tos, explanations and settings. A decision shows nothing that is run."""
DETAILS = sorted(page for folder in FOLDERS[:3] for page in (ROOT / folder / "docs").glob("*.md"))
"""What a table of options cannot say about a kind."""
PAGES = [*GUIDES, *DETAILS]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_README = (ROOT / "README.md").read_text(encoding="utf-8")
README_DEFINITION = "".join(re.findall(r"^```yaml\n(.*?)^```$", _README, re.DOTALL | re.MULTILINE))
_NOT_SAID = re.compile(r"^```.*?^```$|<!--.*?-->|^#+ [^\n]*$", re.DOTALL | re.MULTILINE)
_ENDS = re.compile(r"# .*\bexits with (\d)")
_PARTS = r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.)\s?)|(?<!\\)\|"
"""Between paragraphs, items of a list, and cells of a table."""


@dataclass(frozen=True)
class Block:
    """A block of code, and the comment above it."""

    language: str
    text: str
    note: str


def list_blocks(page: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(language=found["language"], text=found["text"], note=found["note"] or "")


def list_sentences(page: Path) -> list[str]:
    """What a page says, but for its code and headings. A list's item and a table's cell are sentences of their own."""
    text = _NOT_SAID.sub("\n", page.read_text(encoding="utf-8"))
    sentences = [each for part in re.split(_PARTS, text) for each in re.split(r"(?<=[.!?:])\s+", part)]
    return [" ".join(sentence.split()) for sentence in sentences]


def count_words(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def blur(line: str) -> str:
    """A line of output without its numbers and its spacing."""
    return " ".join(re.sub(r"\d[\d.,:-]*", "0", line).split())


@dataclass
class PageReader:
    """Does what a page says, in one folder and one after another, and compares what it prints with what is shown."""

    monkeypatch: pytest.MonkeyPatch
    python: dict[str, object] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)

    def follow(self, page: Path, folder: Path) -> None:
        self.monkeypatch.chdir(folder)
        self.monkeypatch.setenv("COLUMNS", "100")
        for block in list_blocks(page):
            if block.note.startswith("not run: "):
                continue
            notes: Mapping[str, Any] = {"file": self._write, "into": self._put_into, "definition": self._begin}
            kind, _, argument = block.note.partition(": ")
            notes.get(kind, lambda *_: None)(argument, block)
            getattr(self, f"_do_{block.language}", self._leave_out)(block)

    def _write(self, name: str, block: Block) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block.text, encoding="utf-8")

    def _begin(self, name: str, _: Block) -> None:
        """With the definition that a page shows, and some orders."""
        make(Path.cwd(), files=2, rows=50)
        (definition,) = (each.text for each in list_blocks(ROOT / name) if each.language == "yaml")
        Path("orders.yaml").write_text(definition, encoding="utf-8")

    def _put_into(self, name: str, block: Block) -> None:
        """The keys that the block has take the place of those of the definition."""
        yaml = YAML(typ="safe", pure=True)
        yaml.dump(yaml.load(Path(name)) | yaml.load(block.text), Path(name))

    def _do_yaml(self, block: Block) -> None:
        """A whole definition, or keys of the one that the README shows; or a file of another kind."""
        whole = "" if block.text.startswith("name: ") else README_DEFINITION
        if whole and block.note.startswith("file: "):
            return
        Path("shown.yaml").write_text(whole or block.text, encoding="utf-8")
        if whole:
            self._put_into("shown.yaml", block)
        assert load(Path("shown.yaml"), needs_secrets=False).pipeline.name
        Path("shown.yaml").unlink()

    def _leave_out(self, block: Block) -> None:
        """Only files may be of a language that is not run."""
        assert block.note.startswith("file: "), block

    def _do_console(self, block: Block) -> None:
        """Each command ends with 0, or with what the comment behind it says."""
        programs: Mapping[str, Any] = {"wherry": self._wherry, "cd": self._cd}
        for line in block.text.splitlines():
            ends = int(("".join(_ENDS.findall(line))) or 0)
            program, *words = shlex.split(line.removeprefix("$ "), comments=True)
            programs.get(program, self._call)(ends, program, *words)

    def _call(self, ends: int, *words: str) -> None:
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == ends, done
        self.printed += done.stdout.splitlines()

    def _cd(self, _ends: int, _program: str, folder: str) -> None:
        self.monkeypatch.chdir(folder)

    def _wherry(self, ends: int, _program: str, *words: str) -> None:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            code = execute(words)
        self.printed += printed.getvalue().splitlines()
        assert code == ends, (words, self.printed)

    def _do_python(self, block: Block) -> None:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(block.text, self.python)  # noqa: S102  (it is our own page)
        self.printed += printed.getvalue().splitlines()

    def _do_text(self, block: Block) -> None:
        printed = {blur(line) for line in self.printed}
        assert [line for line in block.text.splitlines() if blur(line) not in printed] == [], self.printed
