"""The generated reference explains each kind, option, command, metric and event."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from runners.command_line.commands import wherry
from runners.command_line.help_sections import SHARED
from runners.definitions.definition import load
from runners.definitions.kinds import CONTRACTS, describe_kind, get_our_kinds, list_options, read_docs
from runners.docs.site.build_site import find_problems
from runners.docs.site.reference import (
    DEFINITION,
    FOLDERS,
    make_example,
    make_pages,
    write_reference,
)
from runners.listeners.metrics import METRICS
from tests.pages import count_words, list_sentences

PAGES = make_pages()
KINDS = [describe_kind(role, kind) for role in CONTRACTS for kind in get_our_kinds().get_kinds(role)]
LONGEST = 25
"""The largest number of words in a sentence."""
DEFINED = re.compile(r"^(`.+`)\n: (?:\*.*\*\n\n  )?(.*)$", re.MULTILINE)
"""A term of a page, and its meaning."""


def read_terms(page: str) -> dict[str, str]:
    """Return the terms of a page with their meanings."""
    return dict(DEFINED.findall(PAGES[page]))


def walk_commands(group: click.Group, words: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Return all commands by the names of their pages."""
    found = {"-".join((*words, name)): command for name, command in group.commands.items()}
    inside = [(name, each) for name, each in group.commands.items() if isinstance(each, click.Group)]
    return found | {page: each for name, group in inside for page, each in walk_commands(group, (*words, name)).items()}


COMMANDS = walk_commands(wherry)


def test_a_page_explains_every_option_of_a_kind() -> None:
    """Each option inside or beside the kind has a sentence."""
    for kind in KINDS:
        terms = read_terms(f"{FOLDERS[kind.role]}/{kind.name}.md")
        assert {name for name, text in terms.items() if text.endswith(".")} == {
            f"`{each.name}`" for each in (*kind.options, *kind.beside)
        }, kind


def test_the_example_of_a_kind_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition loads, and uses the kind."""
    for kind in KINDS:
        monkeypatch.setenv("SALT", "pepper")
        (tmp_path / "orders.yaml").write_text(make_example(kind), encoding="utf-8")
        pipeline = load(tmp_path / "orders.yaml").pipeline
        used = [*pipeline.every_origin, *pipeline.stages, *pipeline.destinations]
        assert get_our_kinds().resolve(kind.role, kind.name) in [type(each) for each in used], kind
        assert f"```yaml\n{make_example(kind)}```" in PAGES[f"{FOLDERS[kind.role]}/{kind.name}.md"], kind


def test_codes_are_on_one_page() -> None:
    """The page of each kind links to it."""
    pages = [
        page for folder in FOLDERS.values() for page in PAGES if page.startswith(f"{folder}/") and "index" not in page
    ]
    assert len(pages) == len(KINDS)
    assert [page for page in pages if "](../../runners/CODES.md)" not in PAGES[page]] == []
    assert [page for page, text in PAGES.items() if "codes/" in page + text] == []


def test_the_page_of_definitions_explains_every_word() -> None:
    """Each word has a sentence."""
    for word in DEFINITION:
        docs = read_docs(DEFINITION[word])
        options = list_options(DEFINITION[word])
        assert [name for name in options if not docs.get(name, "").endswith(".")] == [], word
        assert [name for name in options if docs[name] not in PAGES["definition.md"]] == [], word


def test_a_page_explains_every_option_of_a_command() -> None:
    """The page begins with what the command does."""
    for name in sorted(COMMANDS):
        command = COMMANDS[name]
        options = [each for each in command.params if isinstance(each, click.Option)]
        terms = read_terms(f"commands/{name}.md")
        assert len(terms) == len(options), name
        assert [each.opts[0] for each in options if not any(each.opts[0] in term for term in terms)] == [], name
        assert [term for term, text in terms.items() if not text] == [], name
        assert PAGES[f"commands/{name}.md"].splitlines()[2].endswith("."), name


def test_the_index_of_commands_explains_the_common_options() -> None:
    """The page of a command names those that it takes."""
    terms = read_terms("commands/index.md")
    assert [each.opts[0] for each in SHARED if not any(each.opts[0] in term for term in terms)] == []
    assert "[Common options](index.md#common-options): `--quiet`, `--json`\n" in PAGES["commands/demo.md"]
    common = ": `--var`, `--vars`, `--secrets`, `--quiet`, `--json`, `--log-format`, `--server`\n"
    assert common in PAGES["commands/dlq-replay.md"]


def test_every_metric_event_and_key_of_a_report_has_a_meaning() -> None:
    """A metric also has its labels."""
    assert [name for name in METRICS if not read_terms("metrics.md")[f"`{name}`"].endswith(".")] == []
    assert "*counter, by pipeline, lane*" in PAGES["metrics.md"].partition("`wherry_rows_read_total`")[2]
    for page in ("events.md", "report.md"):
        assert [term for term, text in read_terms(page).items() if not text.endswith(".")] == []
    assert "### `BatchSettled`" in PAGES["events.md"]
    assert "### `LeftOut`" in PAGES["events.md"]
    assert "`balanced`" in read_terms("report.md")


def test_the_reference_is_written_in_short_sentences(tmp_path: Path) -> None:
    """A sentence has at most 25 words."""
    write_reference(tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) == len(PAGES)
    said = [(page.name, sentence) for page in pages for sentence in list_sentences(page)]
    assert [each for each in said if count_words(each[1]) > LONGEST] == []


def test_a_broken_link_and_a_resource_of_another_host_are_found(tmp_path: Path) -> None:
    """Links to other sites are allowed. A page may load resources only from this site."""
    (tmp_path / "a.html").write_text(
        '<a href="b.html#part"></a><a href="b.html#gone"></a><a href="c.html"></a><a href="https://example.org"></a>'
        '<script src="https://cdn.example.org/x.js"></script><img src="gone.png">'
    )
    (tmp_path / "b.html").write_text('<h2 id="part"></h2>')
    (tmp_path / "a.css").write_text("@import url(//fonts.example.org/x.css);")
    assert sorted(find_problems(tmp_path)) == [
        "a.css: loads //fonts.example.org/x.css",
        "a.html: leads nowhere: b.html#gone",
        "a.html: leads nowhere: c.html",
        "a.html: leads nowhere: gone.png",
        "a.html: loads https://cdn.example.org/x.js",
    ]
