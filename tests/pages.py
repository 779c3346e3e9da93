"""Read pages of the documentation: their blocks, which tests run, and their sentences."""

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
"""Tutorials, how-tos, explanations and settings. Decisions are not included, because they show nothing that can be
run."""
DETAILS = sorted(page for folder in FOLDERS[:3] for page in (ROOT / folder / "docs").glob("*.md"))
"""Pages about kinds, with details that do not fit into a table of options."""
PAGES = [*GUIDES, *DETAILS]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_README = (ROOT / "README.md").read_text(encoding="utf-8")
README_DEFINITION = "".join(re.findall(r"^```yaml\n(.*?)^```$", _README, re.DOTALL | re.MULTILINE))
_NOT_SAID = re.compile(r"^```.*?^```$|<!--.*?-->|^#+ [^\n]*$", re.DOTALL | re.MULTILINE)
_ENDS = re.compile(r"# .*\bexits with (\d)")
_PARTS = r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.)\s?)|(?<!\\)\|"
"""The places where a text is split: between paragraphs, items of a list, and cells of a table."""


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
    """Return the sentences of a page without its code and headings. Each list item and each table cell counts as a
    sentence."""
    text = _NOT_SAID.sub("\n", page.read_text(encoding="utf-8"))
    sentences = [each for part in re.split(_PARTS, text) for each in re.split(r"(?<=[.!?:])\s+", part)]
    return [" ".join(sentence.split()) for sentence in sentences]


def count_words(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def blur_line(line: str) -> str:
    """Return a line of output with each number as 0 and each run of spaces as one space."""
    return " ".join(re.sub(r"\d[\d.,:-]*", "0", line).split())


@dataclass
class PageReader:
    """A reader that follows pages in a folder, block by block. It compares the printed lines with the lines that the
    page shows."""

    monkeypatch: pytest.MonkeyPatch
    python: dict[str, object] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)

    def follow(self, page: Path, folder: Path) -> None:
        self.monkeypatch.chdir(folder)
        self.monkeypatch.syspath_prepend(str(folder))  # a page's files import each other
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
        """Create some orders, and write the definition that the named page shows."""
        make(Path.cwd(), files=2, rows=50)
        (definition,) = (each.text for each in list_blocks(ROOT / name) if each.language == "yaml")
        Path("orders.yaml").write_text(definition, encoding="utf-8")

    def _put_into(self, name: str, block: Block) -> None:
        """Replace keys of the definition with the keys of the block."""
        yaml = YAML(typ="safe", pure=True)
        yaml.dump(yaml.load(Path(name)) | yaml.load(block.text), Path(name))

    def _do_yaml(self, block: Block) -> None:
        """Check a whole definition, or keys of the README's definition. Skip a YAML file that is not a definition."""
        whole = "" if block.text.startswith("name: ") else README_DEFINITION
        if whole and block.note.startswith("file: "):
            return
        Path("shown.yaml").write_text(whole or block.text, encoding="utf-8")
        if whole:
            self._put_into("shown.yaml", block)
        assert load(Path("shown.yaml"), needs_secrets=False).pipeline.name
        Path("shown.yaml").unlink()

    def _leave_out(self, block: Block) -> None:
        """Check that a block in a language that is not run is a file."""
        assert block.note.startswith("file: "), block

    def _do_console(self, block: Block) -> None:
        """Run each command. Its exit code must be 0, or the code in the comment after it."""
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
            exec(block.text, self.python)  # noqa: S102  (the page is ours)
        self.printed += printed.getvalue().splitlines()

    def _do_text(self, block: Block) -> None:
        printed = {blur_line(line) for line in self.printed}
        assert [line for line in block.text.splitlines() if blur_line(line) not in printed] == [], self.printed
