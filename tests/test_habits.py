"""The pages and texts that newcomers read exist, are correct and are easy to read."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.messages import Text, list_docstrings, list_messages, list_sources, list_test_names
from tests.pages import DETAILS, PAGES, count_words, list_sentences

ROOT = Path(__file__).parents[1]
FOLDERS = ("origins", "stages", "destinations", "runners")
DECISIONS = ROOT / "runners/docs/decisions"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))
INDEX = (DECISIONS / "README.md").read_text(encoding="utf-8")
_LISTED = re.compile(r"^- \[(\d+)\]\((.+?)\) (.+?)(?: \(([\d, ]+)\))?$", re.MULTILINE)
"""A line of the index: a number, a file, a title, and the numbers of decisions that it replaced."""
LONGEST = 25
"""The largest number of words in a sentence."""


def read_title(file: Path) -> str:
    return file.read_text(encoding="utf-8").splitlines()[0].partition(". ")[2]


def test_decisions_are_numbered_without_a_gap() -> None:
    """A number is that of a file and of its title, or of one decision that the index names as replaced."""
    numbers = [re.findall(r"\d+", file.read_text(encoding="utf-8").splitlines()[0])[0] for file in FILES]
    assert [int(number) for number in numbers] == [int(file.name[:4]) for file in FILES]
    replaced = [each for *_, numbers in _LISTED.findall(INDEX) for each in re.findall(r"\d+", numbers)]
    every = sorted(map(int, [*numbers, *replaced]))
    assert every == list(range(1, len(every) + 1))


def test_the_index_lists_each_decision_under_a_topic() -> None:
    """The index shows each decision's title. Decisions below a topic are in the order of their numbers."""
    rows = [[row[:3] for row in _LISTED.findall(topic)] for topic in INDEX.split("\n## ")[1:]]
    assert [topic for topic in rows if not topic or topic != sorted(topic)] == []
    listed = sorted(row for topic in rows for row in topic)
    assert listed == [(file.name[:4], file.name, read_title(file)) for file in FILES]


def test_a_decision_has_a_context_a_decision_and_a_price() -> None:
    """It has these three headings, and its sentences are short."""
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Price"], file
        sentences = re.split(r"(?<=[.!?:])\s+|\n\n", text)
        assert [each for each in sentences if len(each.split()) > LONGEST] == [], file


@pytest.mark.parametrize("script", ["fast", "run", "nightly", "site"])
def test_a_script_can_be_run(script: str) -> None:
    """The script is executable, and bash finds no syntax error in it."""
    file = ROOT / ".ci" / script
    assert os.access(file, os.X_OK)
    assert subprocess.run(["bash", "-n", file], check=False).returncode == 0


def test_a_page_names_only_files_that_exist() -> None:
    """These are paths from the top of the repository. Decisions and the changelog may name files of the past."""
    pages = [ROOT / "README.md", *READMES, *PAGES, *OTHERS, ROOT / ".github/CONTRIBUTING.md"]
    paths = re.compile(rf"[` ]((?:{'|'.join(FOLDERS)}|tests)/[\w/.-]*\w/?)[` \n]")
    named = [(page.name, path) for page in pages for path in paths.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 50
    past = {"CHANGELOG.md"}
    assert [each for each in named if each[0] not in past and not (ROOT / each[1]).exists()] == []


def list_anchors(page: Path) -> list[str]:
    """Return the headings of a page in the form that a link uses."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_a_link_in_the_guides_leads_to_an_existing_target() -> None:
    """Each link leads to an existing file and heading. READMEs and decisions are checked too."""
    readmes = [ROOT / "README.md", *READMES]
    guides = [*readmes, *ROOT.glob(".github/*.md"), *(ROOT / "runners/docs").glob("**/*.md"), *DETAILS]
    found = [(file, link) for file in guides for link in re.findall(r"\]\(([^)\s]+)\)", file.read_text())]
    links = [(file, *link.partition("#")[::2]) for file, link in found if ":" not in link]
    assert [(file.name, link) for file, link, _ in links if not (file.parent / link).exists()] == []
    headings = [(file, (file.parent / link) if link else file, heading) for file, link, heading in links if heading]
    assert [(file.name, heading) for file, to, heading in headings if heading not in list_anchors(to)] == []
    assert len(links) > len(FILES)


def test_every_path_in_the_contributing_guide_exists() -> None:
    """A path is written as code and begins with one of the folders."""
    text = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:origins|stages|destinations|runners|tests|\.ci)/[\w./-]+)`", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_file_that_a_readme_names_exists() -> None:
    """A README names a file by its path in the folder, or by its name alone."""
    for folder in FOLDERS:
        text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        named = re.findall(r"`((?!queues)\w[\w/]*\.py)`", text)
        assert [name for name in named if not [*ROOT.glob(f"{folder}/**/{name}"), *ROOT.glob(name)]] == []


WORDS = re.compile(r"\b(anew|nobody|those of which|told|lies?)\b|\bsay[,.);]")
"""Words that make a text hard to read."""
OTHERS = [ROOT / "runners/CODES.md", ROOT / "runners/docs/CHANGELOG.md", DECISIONS / "README.md"]
READMES = sorted({*ROOT.glob("[a-z]*/**/README.md")} - {DECISIONS / "README.md"})


def test_a_page_is_written_in_short_sentences() -> None:
    """A sentence has at most 25 words."""
    pages = [ROOT / "README.md", *READMES, *PAGES, *OTHERS, ROOT / ".github/CONTRIBUTING.md"]
    found = [(str(page.relative_to(ROOT)), sentence) for page in pages for sentence in list_sentences(page)]
    assert [each for each in found if count_words(each[1]) > LONGEST] == []


def test_a_page_has_no_word_that_is_hard_to_read() -> None:
    """The READMEs, the guides, the codes and the change log are checked."""
    pages = [ROOT / "README.md", *READMES, *PAGES, *OTHERS]
    found = [(str(page.relative_to(ROOT)), sentence) for page in pages for sentence in list_sentences(page)]
    assert [each for each in found if WORDS.search(each[1].lower())] == []


def test_an_explanation_takes_a_few_minutes_to_read() -> None:
    """A page of the guides has at most 1,200 words."""
    sizes = {str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert {page: words for page, words in sizes.items() if words > 1_200} == {}


MESSAGE_WORDS = re.compile(
    rf"{WORDS.pattern}|\b(somebody|whoever|whom?|tells|said|lain|ones? that|whatever|whichever|by now|of which"
    r"|carr(y|ies|ied|ying)|nack(s|ed)|dead letter queue)\b"
)
"""Words that a message must not use. A message names the actor, and uses one word for one idea."""
DOCSTRING_WORDS = re.compile(
    rf"{WORDS.pattern}|\b(somebody|everybody|anybody|who|whoever|whom?|said|lain|ones? that|whatever|whichever"
    r"|by now)\b"
)


def list_stumbles(text: Text, words: re.Pattern[str], most: int | None = None) -> list[str]:
    """Return the sentences of a text that are too long or contain one of the words."""
    return [
        f"{text.file}:{text.line}: {sentence}"
        for sentence in text.sentences[:most]
        if count_words(sentence) > LONGEST or words.search(sentence.lower())
    ]


def test_messages_are_found() -> None:
    """Each value in an f-string counts as one word. SQL is not taken for a message."""
    found = {message.text for file in list_sources() for message in list_messages(file)}
    assert "There is nothing at N." in found
    assert "The ledger has a gap: entry N follows N." in found
    assert not [text for text in found if "try_cast(" in text]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_message_is_written_in_short_sentences_of_plain_words(folder: str) -> None:
    """This holds for errors, hints, notices, report lines, headings, prompts and log lines. A sentence has at most 25
    words."""
    files = [file for file in list_sources() if file.relative_to(ROOT).parts[0] == folder]
    messages = [message for file in files for message in list_messages(file)]
    assert len(messages) > 100
    assert [each for message in messages for each in list_stumbles(message, MESSAGE_WORDS)] == []


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_a_docstring_is_written_in_short_sentences_of_plain_words(folder: str) -> None:
    """This holds for modules, classes, functions and attributes, also private ones."""
    docstrings = [docstring for file in (ROOT / folder).rglob("*.py") for docstring in list_docstrings(file)]
    assert len(docstrings) > 100
    assert [each for docstring in docstrings for each in list_stumbles(docstring, DOCSTRING_WORDS)] == []


def test_a_test_is_named_in_plain_words() -> None:
    """This includes the tests of the public suites."""
    files = [file for folder in [*FOLDERS, "tests"] for file in (ROOT / folder).rglob("*.py")]
    names = [name for file in files for name in list_test_names(file)]
    assert len(names) > 3_000
    assert [f"{name.file}:{name.line}: {name.text}" for name in names if DOCSTRING_WORDS.search(name.text)] == []
